package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/test/env"
)

// TestGroupsNeedOnlyWhatTheyRead runs each group of controllers alone, at an API server that serves nothing but what the group
// reads.
func TestGroupsNeedOnlyWhatTheyRead(t *testing.T) {
	t.Parallel()
	existing := env.StartSandbox(t)
	for _, group := range []struct{ name, reads string }{
		{"registration", "managedclusters managedclustersets managedclustersetbindings"},
		{"placement", "managedclusters managedclustersets managedclustersetbindings placements placementdecisions addonplacementscores"},
		{"work", "managedclusters managedclustersets managedclustersetbindings placements placementdecisions manifestworks manifestworkreplicasets"},
		{"addon", "managedclusters managedclustersets managedclustersetbindings placements placementdecisions manifestworks managedclusteraddons clustermanagementaddons addontemplates addondeploymentconfigs"},
	} {
		t.Run(group.name, func(t *testing.T) {
			serveOnly(t, existing, strings.Fields(group.reads))
			controllers := env.NewControllers(t, existing.Kubeconfig, "--controllers", group.name, "--leader-elect=false",
				"--health-probe-bind-address", "0")
			if err := controllers.Start(); err != nil {
				t.Fatal(err)
			}
			env.Eventually(t, func(context.Context) error {
				log := controllers.Log()
				began, work := strings.Count(log, "Starting Controller"), strings.Count(log, "Starting workers")
				if began == 0 || work < began {
					return fmt.Errorf("%d of %d controllers work", work, began)
				}
				return nil
			})
			if err := controllers.Stop(); err != nil {
				t.Errorf("they did not stop well: %v", err)
			}
			if log := controllers.Log(); strings.Contains(log, "no matches for kind") {
				t.Errorf("a kind is missed:\n%s", log)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		serveOnly(t, existing, []string{"managedclusters", "placements", "placementdecisions", "manifestworks"})
		controllers := env.NewControllers(t, existing.Kubeconfig, "--controllers", "placement,work", "--leader-elect=false",
			"--health-probe-bind-address", "0")
		if err := controllers.Start(); err != nil {
			t.Fatal(err)
		}
		controllers.AwaitExit(t)
		for _, says := range []string{
			"the CRD managedclustersets.cluster.open-cluster-management.io with version v1beta2, for the controllers of placement",
			"the CRD manifestworkreplicasets.work.open-cluster-management.io with version v1alpha1, for the controllers of work",
		} {
			if !strings.Contains(controllers.Log(), says) {
				t.Errorf("%q is missing in: %s", says, controllers.Log())
			}
		}
	})
}

// serveOnly leaves an API server with no CRDs but those of these resources.
func serveOnly(t *testing.T, existing *env.Server, resources []string) {
	t.Helper()
	config, err := existing.Config()
	if err != nil {
		t.Fatal(err)
	}
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c := existing.Client(t)
	for _, crd := range crds.Hub() {
		wanted := slices.Contains(resources, crd.Spec.Names.Plural)
		if wanted {
			err = client.IgnoreAlreadyExists(c.Create(t.Context(), asUnstructured(t, crd)))
		} else {
			err = client.IgnoreNotFound(c.Delete(t.Context(), asUnstructured(t, crd)))
		}
		if err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, func(context.Context) error { return expectServed(api, crd, wanted) })
	}
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
