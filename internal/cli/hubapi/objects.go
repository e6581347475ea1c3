package hubapi

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GetAs gets an object for output: with its kind, and without managed fields, as kubectl prints it.
func (c ResourceClient) GetAs(ctx context.Context, kind schema.GroupVersionKind, name string, into runtime.Object) error {
	if err := c.Get(ctx, name, into); err != nil {
		return err
	}
	return setKind(kind, into)
}

// ListAs lists the objects of a kind that the selectors match for output, as GetAs gets one.
func (c ResourceClient) ListAs(ctx context.Context, kind schema.GroupVersionKind, selectors metav1.ListOptions, into runtime.Object) error {
	if err := c.List(ctx, selectors, into); err != nil {
		return err
	}
	into.GetObjectKind().SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return meta.EachListItem(into, func(object runtime.Object) error { return setKind(kind, object) })
}

func setKind(kind schema.GroupVersionKind, object runtime.Object) error {
	object.GetObjectKind().SetGroupVersionKind(kind)
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	accessor.SetManagedFields(nil)
	return nil
}

// ObjectNames are the names of objects, in their order.
func ObjectNames[T any, P interface {
	*T
	metav1.Object
}](objects []T) []string {
	names := make([]string, len(objects))
	for i := range objects {
		names[i] = P(&objects[i]).GetName()
	}
	return names
}
