package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/retry"

	"github.com/capstan-io/capstan/internal/apply"
)

const (
	// annotationCRDHash tells which definition of a CRD the hub installed last, so that it writes only what differs.
	annotationCRDHash = "capstan.io/crd-hash"

	// establishTimeout bounds the wait for the CRDs to be served.
	establishTimeout = 30 * time.Second
)

// installCRDs makes the hub serve the given CRDs: it creates and updates what differs, all at once, and waits
// until every one is established.
func installCRDs(ctx context.Context, config *rest.Config, crds []*apiextensionsv1.CustomResourceDefinition) error {
	if len(crds) == 0 {
		return nil
	}
	client, err := apiextensionsclient.NewForConfig(config)
	if err != nil {
		return err
	}
	list, err := client.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list CRDs: %w", err)
	}
	installed := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for i := range list.Items {
		installed[list.Items[i].Name] = &list.Items[i]
	}
	waiting := map[string]bool{}
	var jobs []func() error
	for _, crd := range crds {
		if have := installed[crd.Name]; have == nil || !apply.Established(have) {
			waiting[crd.Name] = true
		}
		jobs = append(jobs, func() error { return installCRD(ctx, client, crd, installed[crd.Name]) })
	}
	if err := inParallel(jobs); err != nil {
		return err
	}
	return waitEstablished(ctx, client, list.ResourceVersion, waiting)
}

func installCRD(ctx context.Context, client apiextensionsclient.Interface, want, have *apiextensionsv1.CustomResourceDefinition) error {
	content, err := json.Marshal(want.Spec)
	if err != nil {
		return fmt.Errorf("install CRD %s: %w", want.Name, err)
	}
	sum := sha256.Sum256(content)
	hash := hex.EncodeToString(sum[:])
	err = retry.OnError(retry.DefaultBackoff, raced, func() error {
		err := writeCRD(ctx, client, want, have, hash)
		if raced(err) {
			have = findCRD(ctx, client, want.Name)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("install CRD %s: %w", want.Name, err)
	}
	return nil
}

// raced tells that another writer has written the same object, as another hub on the same etcd does that starts at this moment,
// too. What there is now has to be read before the next try.
func raced(err error) bool { return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) }

// findCRD is nil for one that cannot be read as well: the next try to create it says what is wrong.
func findCRD(ctx context.Context, client apiextensionsclient.Interface, name string) *apiextensionsv1.CustomResourceDefinition {
	crd, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return crd
}

func writeCRD(ctx context.Context, client apiextensionsclient.Interface, want, have *apiextensionsv1.CustomResourceDefinition,
	hash string) error {
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	switch {
	case have == nil:
		metav1.SetMetaDataAnnotation(&want.ObjectMeta, annotationCRDHash, hash)
		created, err := crds.Create(ctx, want, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return establish(ctx, client, created)
	case have.Annotations[annotationCRDHash] != hash:
		next := have.DeepCopy()
		next.Spec = want.Spec
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, annotationCRDHash, hash)
		_, err := crds.Update(ctx, next, metav1.UpdateOptions{})
		return err
	case !apply.Established(have):
		// The hub was interrupted here, and the API server's own controllers may have been, too: they finish only what
		// they began.
		return establish(ctx, client, have)
	}
	return nil
}

// creationGuard is how long after the Established condition the API server delays each creation of an object, so that its
// replicas have time to learn of the kind.
const creationGuard = 2 * time.Second

// establish says of a new CRD what the API server's controllers would find out one after the other: that nobody else has its
// names, and that it is served. It says so of a moment ago, for a hub that has just begun has no replicas to wait for,
// and would keep the first cluster waiting.
func establish(ctx context.Context, client apiextensionsclient.Interface, crd *apiextensionsv1.CustomResourceDefinition) error {
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
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
		_, err := crds.UpdateStatus(ctx, crd, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
		latest, getErr := crds.Get(ctx, crd.Name, metav1.GetOptions{})
		if getErr != nil {
			return getErr
		}
		crd = latest
		return err
	})
}

// waitEstablished follows the CRDs from the moment they were listed until none of those awaited is missing.
func waitEstablished(ctx context.Context, client apiextensionsclient.Interface, from string, waiting map[string]bool) error {
	if len(waiting) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.ApiextensionsV1().CustomResourceDefinitions().Watch(ctx, o)
		},
	}, client)
	_, err := toolswatch.Until(ctx, from, source, func(event watch.Event) (bool, error) {
		if crd, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition); ok && apply.Established(crd) {
			delete(waiting, crd.Name)
		}
		return len(waiting) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for CRDs to be established, missing %v: %w", slices.Sorted(maps.Keys(waiting)), err)
	}
	return nil
}

// servedPollInterval is the time between two looks at what is served; there is no event for it.
const servedPollInterval = 10 * time.Millisecond

// awaitServed returns when clients find all kinds by discovery. An established CRD is not enough: after a restart it takes
// the API server a moment to publish what it has.
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
	err = wait.PollUntilContextTimeout(ctx, servedPollInterval, establishTimeout, true, func(context.Context) (bool, error) {
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
		return fmt.Errorf("wait for discovery to have all kinds, missing %v: %w", slices.Collect(maps.Keys(missing)), err)
	}
	return nil
}
