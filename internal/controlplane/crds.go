package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/program"
)

// installCRDs makes the hub serve the given CRDs: it creates and updates what differs, all at once.
func installCRDs(ctx context.Context, config *rest.Config, crds []*apiextensionsv1.CustomResourceDefinition) error {
	cluster, err := apply.NewCRDClient(config)
	if err != nil {
		return err
	}
	var jobs []func() error
	for _, crd := range crds {
		jobs = append(jobs, func() error { return installCRD(ctx, cluster, crd) })
	}
	return inParallel(jobs)
}

// installCRD tries again while others write the definition, too, and while objects are to be migrated of a kind that the API server, which
// has just started, does not publish yet.
func installCRD(ctx context.Context, cluster client.Client, crd *apiextensionsv1.CustomResourceDefinition) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, servedPollInterval, servedTimeout, true, func(context.Context) (bool, error) {
		if last = ensureCRD(ctx, cluster, crd); apierrors.IsConflict(last) || meta.IsNoMatchError(last) {
			return false, nil
		}
		return true, last
	})
	if err != nil {
		return fmt.Errorf("install CRD %s: %w", crd.Name, cmp.Or(last, err))
	}
	return nil
}

// ensureCRD also establishes one that was installed by a hub that was interrupted before it did so: the API server's own controllers
// complete only what they started.
func ensureCRD(ctx context.Context, cluster client.Client, crd *apiextensionsv1.CustomResourceDefinition) error {
	err := apply.InstallCRD(ctx, cluster, crd, program.Version())
	if err != nil || apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return err
	}
	return establish(ctx, cluster, crd)
}

// creationGuard is how long after the Established condition the API server delays each creation of an object, so that its
// replicas have time to learn of the kind.
const creationGuard = 2 * time.Second

// establish says of a new CRD what the API server's controllers would find out one after the other: that nobody else has its
// names, and that it is served. It says so of a moment ago, for a hub that has just started has no replicas to wait for,
// and would keep the first cluster waiting.
//
// The API server's controllers may write their findings at the same moment: those of now are replaced.
func establish(ctx context.Context, cluster client.Client, crd *apiextensionsv1.CustomResourceDefinition) error {
	since := metav1.NewTime(time.Now().Add(-creationGuard - time.Second))
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		crd.Status.AcceptedNames = crd.Spec.Names
		crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{
			Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: since,
			Reason: "NoConflicts", Message: "no conflicts found",
		}, {
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: since,
			Reason: "InitialNamesAccepted", Message: "the initial names have been accepted",
		}}
		err := cluster.Status().Update(ctx, crd)
		if !apierrors.IsConflict(err) {
			return err
		}
		if readErr := cluster.Get(ctx, client.ObjectKeyFromObject(crd), crd); readErr != nil {
			return readErr
		}
		return err
	})
}

// How often discovery is read, for which there is no event, and for how long.
const (
	servedPollInterval = 10 * time.Millisecond
	servedTimeout      = 30 * time.Second
)

// awaitServed returns when clients find all kinds by discovery, which has those of established CRDs. These alone are not enough: after a
// restart it takes the API server a moment to publish what it has.
func awaitServed(ctx context.Context, config *rest.Config, crds []*apiextensionsv1.CustomResourceDefinition) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	missing := map[schema.GroupVersionResource]bool{}
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			if version.Served {
				missing[schema.GroupVersionResource{Group: crd.Spec.Group, Version: version.Name, Resource: crd.Spec.Names.Plural}] = true
			}
		}
	}
	err = wait.PollUntilContextTimeout(ctx, servedPollInterval, servedTimeout, true, func(context.Context) (bool, error) {
		// What fails now is tried again, and named in the end.
		_, lists, _ := client.ServerGroupsAndResources()
		for _, list := range lists {
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil {
				continue
			}
			for _, resource := range list.APIResources {
				delete(missing, gv.WithResource(resource.Name))
			}
		}
		return len(missing) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for discovery to have all kinds, missing %s: %w", inOrder(missing), err)
	}
	return nil
}

// inOrder lists kinds always in the same order: a message that stays the same is reported once.
func inOrder(kinds map[schema.GroupVersionResource]bool) string {
	var names []string
	for kind := range kinds {
		names = append(names, kind.Resource+"."+kind.Version+"."+kind.Group)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
