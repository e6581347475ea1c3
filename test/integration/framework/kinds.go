package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/test/env"
)

func asUnstructured(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// awaitKinds returns when the API server serves all kinds of a hub.
func awaitKinds(t *testing.T, c client.Client) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		var errs []error
		for _, crd := range crds.Hub() {
			for _, version := range crd.Spec.Versions {
				list := &metav1.PartialObjectMetadataList{}
				list.SetGroupVersionKind(schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.ListKind})
				if version.Served {
					errs = append(errs, c.List(ctx, list))
				}
			}
		}
		return errors.Join(errs...)
	})
}

// ServeOnly leaves an API server with no CRDs but those of these resources.
func ServeOnly(t *testing.T, existing *env.Server, resources []string) {
	t.Helper()
	api, c := discoveryOf(t, existing), existing.Client(t)
	for _, crd := range crds.Hub() {
		var err error
		serve := slices.Contains(resources, crd.Spec.Names.Plural)
		if serve {
			err = client.IgnoreAlreadyExists(c.Create(t.Context(), asUnstructured(t, crd)))
		} else {
			err = client.IgnoreNotFound(c.Delete(t.Context(), asUnstructured(t, crd)))
		}
		if err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, func(context.Context) error { return expectServed(api, crd, serve) })
	}
}

// AwaitServed waits until the discovery of an API server has all kinds of a hub.
func AwaitServed(t *testing.T, existing *env.Server) {
	t.Helper()
	api := discoveryOf(t, existing)
	for _, crd := range crds.Hub() {
		env.Eventually(t, func(context.Context) error { return expectServed(api, crd, true) })
	}
}

func discoveryOf(t *testing.T, existing *env.Server) discovery.DiscoveryInterface {
	t.Helper()
	config, err := existing.Config()
	if err != nil {
		t.Fatal(err)
	}
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// expectServed fails unless all versions of a kind are served, or none.
func expectServed(api discovery.DiscoveryInterface, crd *apiextensionsv1.CustomResourceDefinition, want bool) error {
	for _, version := range crd.Spec.Versions {
		list, err := api.ServerResourcesForGroupVersion(crd.Spec.Group + "/" + version.Name)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		served := list != nil && slices.ContainsFunc(list.APIResources,
			func(r metav1.APIResource) bool { return r.Name == crd.Spec.Names.Plural })
		if served != want {
			return fmt.Errorf("version %s of %s is served: %t", version.Name, crd.Name, served)
		}
	}
	return nil
}
