package hubapi

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
)

// fieldManager owns the fields that this program applies.
const fieldManager = "capstan"

// Resource is how the hub serves a kind.
type Resource struct {
	schema.GroupVersionResource
	Namespaced bool
}

// ResourceOf discovers how the hub serves a kind. One that it does not serve is an error that says so.
func (h *Hub) ResourceOf(ctx context.Context, kind schema.GroupVersionKind) (Resource, error) {
	result := h.Raw().Get().AbsPath(versionPath(kind.GroupVersion())...).Do(ctx)
	err := result.Error()
	if NotServed(err) {
		return Resource{}, fmt.Errorf("the hub does not serve %s, so it has no %s: install its CustomResourceDefinition, or correct apiVersion",
			kind.GroupVersion(), kind.Kind)
	}
	if err != nil {
		return Resource{}, h.Explain("look for "+kind.GroupVersion().String(), err)
	}
	body, err := result.Raw()
	if err != nil {
		return Resource{}, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return Resource{}, fmt.Errorf("read what the hub serves of %s: %w", kind.GroupVersion(), err)
	}
	for _, served := range list.APIResources {
		if served.Kind == kind.Kind && !strings.Contains(served.Name, "/") {
			return Resource{GroupVersionResource: kind.GroupVersion().WithResource(served.Name), Namespaced: served.Namespaced}, nil
		}
	}
	return Resource{}, fmt.Errorf("the hub serves no %s of %s: correct kind or apiVersion", kind.Kind, kind.GroupVersion())
}

func versionPath(version schema.GroupVersion) []string {
	if version.Group == "" {
		return []string{"/api", version.Version}
	}
	return []string{"/apis", version.Group, version.Version}
}

// Apply makes an object what it should be; fields that it does not name are left to others.
func (h *Hub) Apply(ctx context.Context, resource Resource, object *unstructured.Unstructured) error {
	content, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	path := versionPath(resource.GroupVersion())
	if resource.Namespaced {
		path = append(path, "namespaces", object.GetNamespace())
	}
	err = apply(ctx, h.Raw().Patch(types.ApplyPatchType).AbsPath(append(path, resource.Resource, object.GetName())...), content)
	return h.Explain(fmt.Sprintf("apply %s %s", object.GetKind(), object.GetName()), err)
}

func apply(ctx context.Context, request *rest.Request, content []byte) error {
	force := true
	return request.VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager, Force: &force}, metav1.ParameterCodec).
		Body(content).Do(ctx).Error()
}
