package apply

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/apply/serverside"
)

var _ serverside.Client = objects{}

// objects reads and writes objects of a cluster without a cache.
type objects struct {
	client  client.Client
	manager string
}

func (o objects) Get(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(object.GroupVersionKind())
	return live, o.client.Get(ctx, client.ObjectKeyFromObject(object), live)
}

func (o objects) Apply(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	applied := object.DeepCopy()
	content := client.ApplyConfigurationFromUnstructured(applied) // in which the API server's response is written
	return applied, o.client.Apply(ctx, content, client.ForceOwnership, client.FieldOwner(o.manager))
}

func (o objects) Create(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	created := object.DeepCopy()
	return created, o.client.Create(ctx, created, client.FieldOwner(o.manager))
}

func (o objects) Update(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	updated := object.DeepCopy()
	return updated, o.client.Update(ctx, updated, client.FieldOwner(o.manager))
}

func (o objects) Patch(ctx context.Context, object *unstructured.Unstructured, patch []byte) (*unstructured.Unstructured, error) {
	patched := object.DeepCopy()
	return patched, o.client.Patch(ctx, patched, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(o.manager))
}

func (o objects) Delete(ctx context.Context, object *unstructured.Unstructured) error {
	options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground)}
	if version := object.GetResourceVersion(); version != "" {
		options = append(options, client.Preconditions{ResourceVersion: &version})
	}
	return o.client.Delete(ctx, object.DeepCopy(), options...)
}
