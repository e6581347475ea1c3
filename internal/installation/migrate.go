package installation

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-io/capstan/internal/apply/stored"
)

// applyDefinition applies a CustomResourceDefinition. If the one on the cluster has versions that this one no longer has, in which objects
// may be stored, these are stored in its storage version first: the API server could not read such objects any more.
func (c *Cluster) applyDefinition(ctx context.Context, client dynamic.ResourceInterface, definition *unstructured.Unstructured) (
	*unstructured.Unstructured, error,
) {
	apply := func() (*unstructured.Unstructured, error) {
		return client.Apply(ctx, definition.GetName(), definition, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	}
	after, err := apply()
	if !stored.Refused(err) {
		return after, err
	}
	live, getErr := client.Get(ctx, definition.GetName(), metav1.GetOptions{})
	if getErr != nil {
		return nil, getErr
	}
	storage := storageVersion(live)
	if !slices.Contains(versionsOf(definition, ""), storage) {
		return nil, stored.Gone(definition.GetName(), storage, storageVersion(definition), err)
	}
	if err := c.rewrite(ctx, live, storage); err != nil {
		others, _, _ := unstructured.NestedStringSlice(live.Object, "status", "storedVersions")
		others = slices.DeleteFunc(others, func(version string) bool { return version == storage })
		return nil, stored.Failed(definition.GetName(), storage, others, err)
	}
	// With the resource version, because another storage version may have been chosen since.
	_, err = client.Patch(ctx, live.GetName(), types.MergePatchType, stored.Only(live.GetResourceVersion(), storage),
		metav1.PatchOptions{FieldManager: FieldManager}, "status")
	if err != nil {
		return nil, err
	}
	return apply()
}

// rewrite writes all objects of a definition as they are.
func (c *Cluster) rewrite(ctx context.Context, definition *unstructured.Unstructured, version string) error {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	name, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	kind := schema.GroupVersionKind{Group: group, Version: version, Kind: name}
	return stored.Rewrite(ctx, stored.Objects{
		Kind: name,
		List: func(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
			client, err := c.client(ctx, kind, metav1.NamespaceAll)
			if err != nil {
				return nil, err
			}
			return client.List(ctx, options)
		},
		Update: func(ctx context.Context, object *unstructured.Unstructured) error {
			client, err := c.client(ctx, kind, object.GetNamespace())
			if err == nil {
				_, err = client.Update(ctx, object, metav1.UpdateOptions{})
			}
			return err
		},
	})
}

// storageVersion is the version in which objects of a definition are stored. The API server accepts none without one.
func storageVersion(definition *unstructured.Unstructured) string {
	if names := versionsOf(definition, "storage"); len(names) > 0 {
		return names[0]
	}
	return ""
}

// versionsOf are the versions of a definition in which a field is true; all without one.
func versionsOf(definition *unstructured.Unstructured, field string) (names []string) {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, version := range versions {
		if fields, ok := version.(map[string]any); ok && (field == "" || fields[field] == true) {
			name, _ := fields["name"].(string)
			names = append(names, name)
		}
	}
	return names
}
