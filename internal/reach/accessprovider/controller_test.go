package accessprovider

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

func clusterWith(annotations map[string]string) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Annotations: annotations}}
}

func addOnWith(annotations map[string]string) *addonv1beta1.ManagedClusterAddOn {
	return &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{
		Namespace: "c1", Name: fleet.AddOnClusterProxy, Annotations: annotations}}
}

// CP-12: the hub leads to clusters with its add-on whose agents make tunnels.
func TestIsReached(t *testing.T) {
	t.Parallel()
	builtIn := map[string]string{fleet.AnnotationBuiltIn: fleet.LabelTrue}
	for name, test := range map[string]struct {
		objects []client.Object
		want    bool
	}{
		"with the add-on":            {[]client.Object{clusterWith(nil), addOnWith(builtIn)}, true},
		"without the add-on":         {[]client.Object{clusterWith(nil)}, false},
		"the add-on of another":      {[]client.Object{clusterWith(nil), addOnWith(nil)}, false},
		"a cluster that has gone":    {[]client.Object{addOnWith(builtIn)}, false},
		"which registers by AWS IAM": {[]client.Object{clusterWith(byAWS()), addOnWith(builtIn)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, addonv1beta1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			c := New(fake.NewClientBuilder().WithScheme(scheme).WithObjects(test.objects...).Build(), Options{})
			if got, err := c.isReached(t.Context(), "c1"); err != nil || got != test.want {
				t.Errorf("reached: %t, %v", got, err)
			}
		})
	}
}

func byAWS() map[string]string {
	return map[string]string{fleet.AnnotationManagedClusterARN: "arn:aws:eks:us-west-2:123456789012:cluster/c1"}
}

// What is written follows the annotations by which a cluster registers, and no others.
func TestRegistrationChanged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after map[string]string
		want          bool
	}{
		"to AWS IAM":   {nil, byAWS(), true},
		"from AWS IAM": {byAWS(), nil, true},
		"not at all":   {nil, map[string]string{"other": "x"}, false},
	} {
		update := event.UpdateEvent{ObjectOld: clusterWith(test.before), ObjectNew: clusterWith(test.after)}
		if got := RegistrationChanged().Update(update); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
