package apiclient

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Resource is how an API server serves a kind.
type Resource struct {
	schema.GroupVersionResource
	Namespaced bool
}

// Client returns a client for the objects of the resource in a namespace, which is ignored if the resource has none.
func (r Resource) Client(objects dynamic.Interface, namespace string) dynamic.ResourceInterface {
	if r.Namespaced {
		return objects.Resource(r.GroupVersionResource).Namespace(namespace)
	}
	return objects.Resource(r.GroupVersionResource)
}

// Resources reads what an API server serves of a group and version; nothing of one that it does not serve.
func Resources(ctx context.Context, raw rest.Interface, version schema.GroupVersion) ([]metav1.APIResource, error) {
	path := []string{"/apis", version.Group, version.Version}
	if version.Group == "" {
		path = []string{"/api", version.Version}
	}
	body, err := raw.Get().AbsPath(path...).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("the response is no APIResourceList: %w", err)
	}
	return list.APIResources, nil
}

// ResourceOf returns the resource of a kind, which is one of those that the API server serves of its group and version.
func ResourceOf(kind schema.GroupVersionKind, served []metav1.APIResource) (resource Resource, found bool) {
	for i := range served {
		if one := &served[i]; one.Kind == kind.Kind && !strings.Contains(one.Name, "/") { // no subresource
			return Resource{kind.GroupVersion().WithResource(one.Name), one.Namespaced}, true
		}
	}
	return Resource{}, false
}
