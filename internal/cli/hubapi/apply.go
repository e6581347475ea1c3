package hubapi

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-io/capstan/internal/apiclient"
)

// fieldManager owns the fields that this program applies.
const fieldManager = "capstan"

// ResourceOf discovers how the hub serves a kind. One that it does not serve is an error that says so.
func (h *Hub) ResourceOf(ctx context.Context, kind schema.GroupVersionKind) (apiclient.Resource, error) {
	served, err := apiclient.Resources(ctx, h.Raw(), kind.GroupVersion())
	if err != nil {
		return apiclient.Resource{}, h.Explain("look for "+kind.GroupVersion().String(), err)
	}
	if len(served) == 0 {
		return apiclient.Resource{}, fmt.Errorf("the hub does not serve %s, so it has no %s: install its CustomResourceDefinition, or correct apiVersion",
			kind.GroupVersion(), kind.Kind)
	}
	resource, found := apiclient.ResourceOf(kind, served)
	if !found {
		return apiclient.Resource{}, fmt.Errorf("the hub serves no %s of %s: correct kind or apiVersion", kind.Kind, kind.GroupVersion())
	}
	return resource, nil
}

// Apply makes an object what it should be; fields that it does not name are left to others.
func (h *Hub) Apply(ctx context.Context, resource apiclient.Resource, object *unstructured.Unstructured) error {
	_, err := resource.Client(h.Objects(), object.GetNamespace()).Apply(ctx, object.GetName(), object,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return h.Explain(fmt.Sprintf("apply %s %s", object.GetKind(), object.GetName()), err)
}
