package token

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// CM-27: the labels of --labels are on what is made for the tokens of an add-on, and take the place of none of its own.
func TestLabels(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, addonv1beta1.AddToScheme,
		clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello", UID: "uid"}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(addOn).Build()
	c := New(api, Options{Labels: map[string]string{"team": "a", "addon.open-cluster-management.io/name": "other"}, Clock: clock.RealClock{}})
	if _, err := c.apply(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	account, role, binding := c.objects(addOn)
	for _, o := range []client.Object{account, role, binding} {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		if l := o.GetLabels(); l["team"] != "a" || l["addon.open-cluster-management.io/name"] != "hello" ||
			l["open-cluster-management.io/cluster-name"] != "c1" {
			t.Errorf("%T has the labels %v", o, l)
		}
	}
}
