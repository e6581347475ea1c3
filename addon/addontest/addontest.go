// Package addontest helps to test add-ons without a hub: it has a client of a hub that is not there, and add-ons on clusters whose
// configurations are known. It is for tests: what does not fit together panics.
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

// Scheme has the kinds that the client of a manager knows. Add your own to it.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(manager.AddToScheme(scheme))
	return scheme
}

// Client is that of a hub with the objects. It is [ClientOf] for the kinds of Scheme.
func Client(objects ...client.Object) client.Client { return ClientOf(Scheme(), objects...) }

// ClientOf is the client of a hub with the objects, which knows the kinds of the scheme. What it reads as unstructured, as package
// addon/config does, is what was given here, field by field: what is written through the client does not change that.
func ClientOf(scheme *runtime.Scheme, objects ...client.Object) client.Client {
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	given := make([]*unstructured.Unstructured, len(objects))
	for i, object := range objects {
		given[i] = encode(scheme, object)
	}
	return interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).Build(),
		interceptor.Funcs{
			Get: func(ctx context.Context, hub client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
				wanted, ok := into.(*unstructured.Unstructured)
				if !ok {
					return hub.Get(ctx, key, into, opts...)
				}
				for _, object := range given {
					if object.GroupVersionKind() == wanted.GroupVersionKind() && client.ObjectKeyFromObject(object) == key {
						object.DeepCopyInto(wanted)
						return nil
					}
				}
				return apierrors.NewNotFound(schema.GroupResource{Group: wanted.GroupVersionKind().Group, Resource: wanted.GetKind()}, key.Name)
			},
		})
}

// encode is the object as the API server would return it.
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

// Object is one of any kind, written as YAML.
func Object(text string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	utilruntime.Must(yaml.Unmarshal([]byte(text), object))
	return object
}

// Installation is an add-on on a cluster, which is to have the configurations as they are given: each of a kind of Scheme, or with its
// apiVersion and kind. Change its Cluster and AddOn as the test needs it.
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

// Reference is to a configuration in the state in which it is given, for status.configReferences.
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
