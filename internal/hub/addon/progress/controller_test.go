package progress_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/hub/addon/progress"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// AM-09: an add-on is evaluated when its configurations are known, which is one write less for each that is installed.
func TestWaitsForConfigurations(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{workv1.AddToScheme, addonv1beta1.AddToScheme, clusterv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello"}}
	b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(addOn).
		WithObjects(addOn, &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: "hello"}})
	for _, index := range lookup.Indexes() {
		b = b.WithIndex(index.Object, index.Name, index.Values)
	}
	c := b.Build()
	controller := progress.New(c, events.NewFakeRecorder(10), progress.Options{
		Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))})
	condition := func() *metav1.Condition {
		t.Helper()
		if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(addOn)}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(addOn), addOn); err != nil {
			t.Fatal(err)
		}
		return meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionProgressing)
	}
	if got := condition(); got != nil {
		t.Errorf("evaluated before its configurations are known: %+v", got)
	}
	meta.SetStatusCondition(&addOn.Status.Conditions, metav1.Condition{Type: fleet.ConditionConfigured, Status: metav1.ConditionTrue,
		Reason: fleet.ReasonConfigurationsConfigured})
	if err := c.Status().Update(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	if got := condition(); got == nil || got.Reason != fleet.ReasonWaitingForManifestApplied {
		t.Errorf("got %+v, want %s", got, fleet.ReasonWaitingForManifestApplied)
	}
}
