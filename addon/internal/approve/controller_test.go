package approve

import (
	"context"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/internal/catalogue"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// hello registers as configs say.
type hello struct{ addon.Agent }

func (hello) Options() addon.Options {
	return addon.Options{Name: "hello", Registration: &addon.Registration{
		Configs: func(context.Context, addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
			return configs, nil
		},
	}}
}

// A request that was withheld because its cluster is denied is approved when the cluster is accepted again, without another event.
func TestDeniedClusterIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{certificatesv1.AddToScheme, addonv1beta1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	cluster.Status.Conditions = []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionTrue}}
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello"}}
	request := good()
	if err := request.check(t); err != nil {
		t.Fatal(err)
	}
	csr := request.csr
	csr.Name = "x"
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, addOn, csr).WithStatusSubresource(csr).Build()
	agents, err := catalogue.Of(hello{})
	if err != nil {
		t.Fatal(err)
	}
	recorder := events.NewFakeRecorder(1)
	controller := New(c, recorder, Options{Catalogue: agents, Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))})
	for _, accepted := range []bool{false, true} {
		cluster.Spec.HubAcceptsClient = accepted
		if err := c.Update(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		result, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(csr)})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil {
			t.Fatal(err)
		}
		if approved := len(csr.Status.Conditions) > 0; approved != accepted {
			t.Errorf("accepted: %t, approved: %t", accepted, approved)
		}
		if again := result.RequeueAfter > 0; again == accepted {
			t.Errorf("accepted: %t, looked at again: %t", accepted, again)
		}
	}
	if event := <-recorder.Events; !strings.Contains(event, "is not approved: ManagedCluster c1 is denied") {
		t.Error(event)
	}
}
