// Package addontest has what the tests of the packages of add-ons share: a hub that holds configurations, and an add-on on a
// cluster that refers to them. All of it panics on YAML that cannot be read.
package addontest

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	addonconfig "github.com/capstan-io/capstan/internal/addon/config"
)

// hub reads unstructured objects as they were written; the fake client makes them typed, which loses what is empty.
type hub struct {
	client.Client
	objects []*unstructured.Unstructured
}

// Scheme has the types that add-ons read.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, addonv1beta1.AddToScheme, clusterv1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// Client reads the configurations, given as YAML.
func Client(configurations ...string) client.Client {
	return With(fake.NewClientBuilder(), configurations...)
}

// With reads the configurations, given as YAML, and everything else from the fake client of the builder.
func With(builder *fake.ClientBuilder, configurations ...string) client.Client {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(addonv1beta1.GroupVersion.WithKind("AddOnDeploymentConfig"), meta.RESTScopeNamespace)
	mapper.Add(addonv1beta1.GroupVersion.WithKind("AddOnTemplate"), meta.RESTScopeRoot)
	h := hub{Client: builder.WithScheme(Scheme()).WithRESTMapper(mapper).Build()}
	for _, text := range configurations {
		h.objects = append(h.objects, Object(text))
	}
	return h
}

// Get reads an unstructured object; others are the fake client's.
func (h hub) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	wanted, ok := into.(*unstructured.Unstructured)
	if !ok {
		return h.Client.Get(ctx, key, into, opts...)
	}
	for _, object := range h.objects {
		if object.GroupVersionKind() == wanted.GroupVersionKind() && client.ObjectKeyFromObject(object) == key {
			object.DeepCopyInto(wanted)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: wanted.GroupVersionKind().Group, Resource: wanted.GetKind()}, key.Name)
}

// Object decodes YAML.
func Object(text string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	utilruntime.Must(yaml.Unmarshal([]byte(text), object))
	return object
}

// Installation is the add-on hello on cluster1, which is to have these configurations.
func Installation(references ...addonv1beta1.ConfigReference) addon.Installation {
	return addon.Installation{
		Cluster: &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}},
		AddOn: &addonv1beta1.ManagedClusterAddOn{
			ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "hello"},
			Status:     addonv1beta1.ManagedClusterAddOnStatus{ConfigReferences: references},
		},
	}
}

// Desired refers to a configuration, given as YAML, in its present state.
func Desired(text string) addonv1beta1.ConfigReference {
	object := Object(text)
	hash, err := addonconfig.Hash(object)
	utilruntime.Must(err)
	mapping, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	return addonv1beta1.ConfigReference{
		ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: mapping.Group, Resource: mapping.Resource},
		DesiredConfig: &addonv1beta1.ConfigSpecHash{
			ConfigReferent: addonv1beta1.ConfigReferent{Namespace: object.GetNamespace(), Name: object.GetName()}, SpecHash: hash,
		},
	}
}
