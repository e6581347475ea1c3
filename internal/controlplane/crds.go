package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

const (
	// annotationCRDHash tells which definition of a CRD the hub installed last, so that it writes only what differs.
	annotationCRDHash = "capstan.io/crd-hash"

	// establishTimeout bounds the wait for the CRDs to be served.
	establishTimeout = 30 * time.Second
)

// installCRDs makes the hub serve the given CRDs (SC-18): it creates and updates what differs, all at once, and waits
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
		if !established(installed[crd.Name]) {
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
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	switch {
	case have == nil:
		metav1.SetMetaDataAnnotation(&want.ObjectMeta, annotationCRDHash, hash)
		_, err = crds.Create(ctx, want, metav1.CreateOptions{})
	case have.Annotations[annotationCRDHash] != hash:
		next := have.DeepCopy()
		next.Spec = want.Spec
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, annotationCRDHash, hash)
		_, err = crds.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("install CRD %s: %w", want.Name, err)
	}
	return nil
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
		if crd, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition); ok && established(crd) {
			delete(waiting, crd.Name)
		}
		return len(waiting) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for CRDs to be established, missing %v: %w", keys(waiting), err)
	}
	return nil
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	if crd == nil {
		return false
	}
	for _, condition := range crd.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

func keys(set map[string]bool) []string {
	var names []string
	for name := range set {
		names = append(names, name)
	}
	return names
}
