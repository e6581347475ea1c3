package addonhealth

import (
	"maps"
	"strings"
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
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func condition(kind string, status metav1.ConditionStatus, reason string, at time.Time) []metav1.Condition {
	return []metav1.Condition{{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(at)}}
}

func addOn(name string, conditions []metav1.Condition) *addonv1beta1.ManagedClusterAddOn {
	a := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c", Name: name}}
	a.Status.Conditions = conditions
	return a
}

// newHub is a fake API with the cluster c, and the controller on it.
func newHub(t *testing.T, available []metav1.Condition, labels map[string]string, addOns ...client.Object) (client.Client, func()) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, addonv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: labels}}
	cluster.Status.Conditions = available
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).WithObjects(addOns...).
		WithStatusSubresource(&addonv1beta1.ManagedClusterAddOn{}, &clusterv1.ManagedCluster{}).Build()
	controller := New(c, events.NewFakeRecorder(100), Options{Clock: clocktesting.NewFakePassiveClock(noon.Add(300 * time.Millisecond))})
	return c, func() {
		t.Helper()
		if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "c"}}); err != nil {
			t.Fatal(err)
		}
	}
}

// RG-29: there is a label for each add-on that stays, and no other.
func TestLabels(t *testing.T) {
	t.Parallel()
	const kind = fleet.ConditionAvailable
	going := addOn("going", condition(kind, metav1.ConditionTrue, "x", noon))
	now := metav1.NewTime(noon)
	going.DeletionTimestamp, going.Finalizers = &now, []string{"x/y"}
	addOns := []client.Object{
		addOn("up", condition(kind, metav1.ConditionTrue, "x", noon)), addOn("down", condition(kind, metav1.ConditionFalse, "x", noon)),
		addOn("lost", condition(kind, metav1.ConditionUnknown, "x", noon)), addOn("new", nil), going, addOn(strings.Repeat("long", 20), nil),
	}
	const prefix = "feature.open-cluster-management.io/addon-"
	before := map[string]string{"own": "label", prefix + "gone": "available", prefix + "up": "unhealthy"}
	for name, test := range map[string]struct {
		available []metav1.Condition
		want      map[string]string
	}{
		"the cluster is there": {
			condition(fleet.ConditionClusterAvailable, metav1.ConditionTrue, "x", noon),
			map[string]string{"own": "label", prefix + "up": "available", prefix + "down": "unhealthy", prefix + "lost": "unreachable", prefix +
				"new": "unreachable"},
		},
		"nothing is known of the cluster": {nil, before},
	} {
		c, reconcile := newHub(t, test.available, maps.Clone(before), addOns...)
		reconcile()
		cluster := &clusterv1.ManagedCluster{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "c"}, cluster); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(cluster.Labels, test.want) {
			t.Errorf("%s: %v, want %v", name, cluster.Labels, test.want)
		}
	}
}

// RG-30: an add-on says what its lost cluster says; whoever contradicts that later has the last word. A clock that is ahead is no earlier
// contradiction.
func TestLostCluster(t *testing.T) {
	t.Parallel()
	lost := condition(fleet.ConditionClusterAvailable, metav1.ConditionUnknown, "Lost", noon)
	c, reconcile := newHub(t, lost, nil,
		addOn("up", condition(fleet.ConditionAvailable, metav1.ConditionTrue, "Fine", noon.Add(-time.Hour))),
		addOn("unknown", condition(fleet.ConditionAvailable, metav1.ConditionUnknown, "WorkNotFound", noon.Add(-time.Hour))),
		addOn("new", nil), addOn("knows", condition(fleet.ConditionAvailable, metav1.ConditionTrue, "Seen", noon.Add(time.Second))),
		addOn("ahead", condition(fleet.ConditionAvailable, metav1.ConditionTrue, "Fine", noon.Add(time.Hour))))
	reconcile()
	wantReason := func(name, want string) {
		t.Helper()
		found := &addonv1beta1.ManagedClusterAddOn{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "c", Name: name}, found); err != nil {
			t.Fatal(err)
		}
		if got := meta.FindStatusCondition(found.Status.Conditions, fleet.ConditionAvailable); got == nil || got.Reason != want {
			t.Errorf("%s: %+v, want the reason %s", name, got, want)
		}
	}
	for name, want := range map[string]string{"up": "Lost", "unknown": "Lost", "new": "Lost", "knows": "Seen", "ahead": "Lost"} {
		wantReason(name, want)
	}
	for name, says := range map[string]struct {
		status metav1.ConditionStatus
		at     time.Time
	}{
		"up":      {metav1.ConditionTrue, noon.Add(time.Second)},
		"unknown": {metav1.ConditionUnknown, noon.Add(time.Second)},
		"ahead":   {metav1.ConditionTrue, noon.Add(2 * time.Hour)},
	} {
		again := &addonv1beta1.ManagedClusterAddOn{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "c", Name: name}, again); err != nil {
			t.Fatal(err)
		}
		meta.SetStatusCondition(&again.Status.Conditions, metav1.Condition{
			Type: fleet.ConditionAvailable, Status: says.status, Reason: "Again", LastTransitionTime: metav1.NewTime(says.at),
		})
		if err := c.Status().Update(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		reconcile()
		wantReason(name, "Again")
	}
}

// RG-30: the condition stays in its place among the others, and its time is after that of the cluster, whatever it was before.
func TestLostClusterInOrder(t *testing.T) {
	t.Parallel()
	lost := condition(fleet.ConditionClusterAvailable, metav1.ConditionUnknown, "ManagedClusterLeaseUpdateStopped", noon)
	for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
		before := append(condition(fleet.ConditionAvailable, status, "Before", noon.Add(-time.Hour)),
			condition("Other", metav1.ConditionTrue, "Other", noon.Add(-time.Hour))...)
		c, reconcile := newHub(t, lost, nil, addOn("a", before))
		reconcile()
		found := &addonv1beta1.ManagedClusterAddOn{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "c", Name: "a"}, found); err != nil {
			t.Fatal(err)
		}
		got := found.Status.Conditions
		if len(got) != 2 || got[0].Type != fleet.ConditionAvailable || got[0].Status != metav1.ConditionUnknown ||
			got[0].Reason != "ManagedClusterLeaseUpdateStopped" ||
			!got[0].LastTransitionTime.Time.Equal(noon.Add(time.Second)) || !got[1].LastTransitionTime.Time.Equal(noon.Add(-time.Hour)) {
			t.Errorf("after %s: %+v", status, got)
		}
	}
}
