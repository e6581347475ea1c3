package installation

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// migrated is a cluster with objects to migrate, and its definitions.
type migrated struct {
	cluster     *Cluster
	definitions dynamic.ResourceInterface
}

func (m migrated) Definition(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	live, err := m.definitions.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return definitionOf(live)
}

func (m migrated) MergeStatus(ctx context.Context, live *apiextensionsv1.CustomResourceDefinition, patch []byte) error {
	options := metav1.PatchOptions{FieldManager: FieldManager}
	_, err := m.definitions.Patch(ctx, live.Name, types.MergePatchType, patch, options, "status")
	return err
}

func (m migrated) List(ctx context.Context, kind schema.GroupVersionKind, options metav1.ListOptions) (
	*unstructured.UnstructuredList, error,
) {
	client, err := m.cluster.client(ctx, kind, metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	return client.List(ctx, options)
}

func (m migrated) Update(ctx context.Context, object *unstructured.Unstructured) error {
	client, err := m.cluster.client(ctx, object.GroupVersionKind(), object.GetNamespace())
	if err == nil {
		_, err = client.Update(ctx, object, metav1.UpdateOptions{})
	}
	return err
}

// definitionOf is a definition that was read without its type.
func definitionOf(object *unstructured.Unstructured) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	return definition, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, definition)
}
