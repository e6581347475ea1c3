// Package addontest helps to test add-ons without a hub. It has a client that serves objects from memory, and makes Installations whose
// configurations are known. It is for tests only: it panics on arguments that do not fit together.
package addontest

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/config"
	"github.com/capstan-io/capstan/addon/manager"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// Scheme returns a scheme with the kinds that the client of a manager knows. Add other kinds to it as needed.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(manager.AddToScheme(scheme))
	return scheme
}

// Client returns a client of a hub that has the objects. It is [ClientOf] for the kinds of Scheme.
func Client(objects ...client.Object) client.Client { return ClientOf(Scheme(), objects...) }

// ClientOf returns a client of a hub that has the objects, with the kinds of the scheme, of whose versions the hub prefers that with the
// highest priority. Unstructured reads, which package addon/config makes, return the objects exactly as they were given here, and do not
// see what is written through the client.
func ClientOf(scheme *runtime.Scheme, objects ...client.Object) client.Client {
	mapper := meta.NewDefaultRESTMapper(scheme.PrioritizedVersionsAllGroups())
	for kind := range scheme.AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	given := make([]*unstructured.Unstructured, len(objects))
	builder := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper)
	for i, object := range objects {
		given[i] = encode(scheme, object)
		builder.WithObjects(object.DeepCopyObject().(client.Object)) // it writes to those that it is given, which tests may share
	}
	return interceptor.NewClient(builder.Build(),
		interceptor.Funcs{
			Get: func(ctx context.Context, hub client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
				target, ok := into.(*unstructured.Unstructured)
				if !ok {
					return hub.Get(ctx, key, into, opts...)
				}
				for _, object := range given {
					if object.GroupVersionKind() == target.GroupVersionKind() && client.ObjectKeyFromObject(object) == key {
						object.DeepCopyInto(target)
						return nil
					}
				}
				return apierrors.NewNotFound(schema.GroupResource{Group: target.GroupVersionKind().Group, Resource: target.GetKind()}, key.Name)
			},
		})
}

// encode returns the object as the API server would.
func encode(scheme *runtime.Scheme, object client.Object) *unstructured.Unstructured {
	if encoded, ok := object.(*unstructured.Unstructured); ok {
		return encoded
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	utilruntime.Must(err)
	encoded := &unstructured.Unstructured{Object: content}
	if encoded.GroupVersionKind().Empty() {
		kind, err := apiutil.GVKForObject(object, scheme)
		utilruntime.Must(err)
		encoded.SetGroupVersionKind(kind)
	}
	return encoded
}

// Object parses an object of any kind from YAML.
func Object(text string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	utilruntime.Must(yaml.Unmarshal([]byte(text), object))
	return object
}

// Installation returns an add-on on a cluster. Its status.configReferences name the configurations in their given state; each has a
// kind of Scheme, or sets its apiVersion and kind. Change its Cluster and AddOn as the test needs.
func Installation(cluster, addOn string, configurations ...client.Object) addon.Installation {
	installation := addon.Installation{
		Cluster: &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}},
		AddOn:   &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: addOn}},
	}
	for _, configuration := range configurations {
		installation.AddOn.Status.ConfigReferences = append(installation.AddOn.Status.ConfigReferences, Reference(configuration))
	}
	return installation
}

// Reference returns the entry of status.configReferences for a configuration in its given state.
func Reference(configuration client.Object) addonv1beta1.ConfigReference {
	encoded := encode(Scheme(), configuration)
	hash, err := config.Hash(encoded)
	utilruntime.Must(err)
	resource, _ := meta.UnsafeGuessKindToResource(encoded.GroupVersionKind())
	return addonv1beta1.ConfigReference{
		ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: resource.Group, Resource: resource.Resource},
		DesiredConfig: &addonv1beta1.ConfigSpecHash{
			ConfigReferent: addonv1beta1.ConfigReferent{Namespace: encoded.GetNamespace(), Name: encoded.GetName()}, SpecHash: hash,
		},
	}
}
