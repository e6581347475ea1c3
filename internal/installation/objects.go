package installation

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-io/capstan/internal/apply/serverside"
)

var _ serverside.Client = objects{}

// objects reads and writes the objects of a kind in a namespace.
type objects struct {
	client dynamic.ResourceInterface
	dryRun []string // that of requests; empty if they take effect
}

func (o objects) Get(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return o.client.Get(ctx, object.GetName(), metav1.GetOptions{})
}

func (o objects) Apply(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return o.client.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: FieldManager, DryRun: o.dryRun, Force: true})
}

func (o objects) Create(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return o.client.Create(ctx, object, metav1.CreateOptions{FieldManager: FieldManager, DryRun: o.dryRun})
}

func (o objects) Update(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return o.client.Update(ctx, object, metav1.UpdateOptions{FieldManager: FieldManager, DryRun: o.dryRun})
}

func (o objects) Patch(ctx context.Context, object *unstructured.Unstructured, patch []byte) (*unstructured.Unstructured, error) {
	return o.client.Patch(ctx, object.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: FieldManager, DryRun: o.dryRun})
}

func (o objects) Delete(ctx context.Context, object *unstructured.Unstructured) error {
	propagation := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &propagation, DryRun: o.dryRun}
	if version := object.GetResourceVersion(); version != "" {
		options.Preconditions = &metav1.Preconditions{ResourceVersion: &version}
	}
	return o.client.Delete(ctx, object.GetName(), options)
}
