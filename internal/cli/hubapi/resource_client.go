package hubapi

import (
	"context"
	"encoding/json"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// ResourceClient reads and writes the objects of one resource. Its errors are those of the API: Explain says what they mean.
type ResourceClient struct {
	client    rest.Interface
	resource  string
	scoped    bool // to the namespace
	namespace string
}

// Client returns a client for a resource of a kind that newScheme lists, in all namespaces if it has any.
func (h *Hub) Client(resource schema.GroupVersionResource) ResourceClient {
	return ResourceClient{client: h.clients[resource.GroupVersion()], resource: resource.Resource}
}

// Namespace returns a client for one namespace; an empty one is all of them.
func (c ResourceClient) Namespace(namespace string) ResourceClient {
	c.namespace, c.scoped = namespace, true
	return c
}

// on directs a request to the resource.
func (c ResourceClient) on(request *rest.Request) *rest.Request {
	return request.NamespaceIfScoped(c.namespace, c.scoped).Resource(c.resource)
}

// Get reads an object, or sees whether it is there if it is nil.
func (c ResourceClient) Get(ctx context.Context, name string, into runtime.Object) error {
	return decode(c.on(c.client.Get()).Name(name).Do(ctx), into)
}

// List reads the objects that the selectors match.
func (c ResourceClient) List(ctx context.Context, selectors metav1.ListOptions, into runtime.Object) error {
	return c.on(c.client.Get()).VersionedParams(&selectors, metav1.ParameterCodec).Do(ctx).Into(into)
}

// Create creates an object, and reads it as it is on the hub unless that is nil.
func (c ResourceClient) Create(ctx context.Context, object, created runtime.Object) error {
	return decode(c.on(c.client.Post()).Body(object).Do(ctx), created)
}

// MergePatch patches an object with a JSON merge patch.
func (c ResourceClient) MergePatch(ctx context.Context, name string, patch []byte) error {
	return c.on(c.client.Patch(types.MergePatchType)).Name(name).Body(patch).Do(ctx).Error()
}

// Apply makes an object what it should be; fields that it does not name are left to others.
func (c ResourceClient) Apply(ctx context.Context, name string, content []byte) error {
	force := true
	return c.on(c.client.Patch(types.ApplyPatchType)).Name(name).
		VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager, Force: &force}, metav1.ParameterCodec).Body(content).Do(ctx).Error()
}

// Delete deletes an object, and does not wait until it is gone.
func (c ResourceClient) Delete(ctx context.Context, name string) error {
	return c.on(c.client.Delete()).Name(name).Do(ctx).Error()
}

// DeleteAsRead is Delete for an object that was read, with a conflict if others have changed it since.
func (c ResourceClient) DeleteAsRead(ctx context.Context, read metav1.Object) error {
	uid, version := read.GetUID(), read.GetResourceVersion()
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
	return c.on(c.client.Delete()).Name(read.GetName()).Body(options).Do(ctx).Error()
}

// pointerTo is what objects of a kind are read into.
type pointerTo[T any] interface {
	*T
	runtime.Object
}

// Change reads an object, has it changed and writes it, again if others have changed it meanwhile. What is not changed is not written, and
// fields that this program does not know, as those of a newer hub, stay as they are.
func Change[T any, P pointerTo[T]](ctx context.Context, c ResourceClient, name string, change func(P) (changed bool, err error)) error {
	return ChangeSubresource(ctx, c, name, "", change)
}

// ChangeSubresource changes what of an object is written by a subresource of it.
func ChangeSubresource[T any, P pointerTo[T]](ctx context.Context, c ResourceClient, name, subresource string,
	change func(P) (changed bool, err error)) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live, err := c.read(ctx, name)
		if err != nil {
			return err
		}
		known := P(new(T))
		if err := converter.FromUnstructured(live, known); err != nil {
			return err
		}
		before, err := converter.ToUnstructured(known)
		if err != nil {
			return err
		}
		if changed, err := change(known); err != nil || !changed {
			return err
		}
		after, err := converter.ToUnstructured(known)
		if err != nil {
			return err
		}
		copyChanges(live, before, after)
		return c.replace(ctx, name, subresource, live)
	})
}

// converter is that of Kubernetes: it drops the fields that a type does not have.
var converter = runtime.DefaultUnstructuredConverter

// copyChanges gives an object the fields in which two states of it differ. A list is one field.
func copyChanges(into, before, after map[string]any) {
	for key := range before {
		if _, kept := after[key]; !kept {
			delete(into, key)
		}
	}
	for key, value := range after {
		if reflect.DeepEqual(before[key], value) {
			continue
		}
		was, wasMap := before[key].(map[string]any)
		is, isMap := value.(map[string]any)
		there, thereMap := into[key].(map[string]any)
		if wasMap && isMap && thereMap {
			copyChanges(there, was, is)
			continue
		}
		into[key] = value
	}
}

// read reads an object with all its fields.
func (c ResourceClient) read(ctx context.Context, name string) (map[string]any, error) {
	result := c.on(c.client.Get()).Name(name).SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	content, err := result.Raw()
	if err != nil {
		return nil, err
	}
	var object map[string]any
	return object, utiljson.Unmarshal(content, &object)
}

// replace writes an object with all its fields.
func (c ResourceClient) replace(ctx context.Context, name, subresource string, object map[string]any) error {
	content, err := json.Marshal(object)
	if err != nil {
		return err
	}
	request := c.on(c.client.Put()).Name(name)
	if subresource != "" {
		request = request.SubResource(subresource)
	}
	return request.SetHeader("Content-Type", runtime.ContentTypeJSON).Body(content).Do(ctx).Error()
}

func decode(result rest.Result, into runtime.Object) error {
	if into == nil {
		return result.Error()
	}
	return result.Into(into)
}
