package sigdecision

import (
	"maps"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

func setUp(t *testing.T, objects ...client.Object) (client.Client, func()) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1beta1.AddToScheme, multiclusterv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return c, func() {
		t.Helper()
		request := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "web-decision-2"}}
		if _, err := New(c).Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
}

func decided(clusters ...string) *clusterv1beta1.PlacementDecision {
	d := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-decision-2", UID: "uid",
		Labels: map[string]string{fleet.LabelPlacement: "web"}}}
	for _, cluster := range clusters {
		d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: cluster, Reason: "why"})
	}
	return d
}

func shown() *multiclusterv1alpha1.PlacementDecision {
	return &multiclusterv1alpha1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-decision-2"}}
}

// NX-04: a decision is shown with its labels, follows the one of the hub, and goes with it.
func TestDecisionIsShown(t *testing.T) {
	t.Parallel()
	of := decided("paris", "rome")
	c, reconcile := setUp(t, of)
	reconcile()
	got := shown()
	read := func() {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(got), got); err != nil {
			t.Fatal(err)
		}
	}
	read()
	want := map[string]string{"multicluster.x-k8s.io/decision-key": "web", "multicluster.x-k8s.io/placement-key": "web",
		"multicluster.x-k8s.io/decision-index": "1"}
	if !maps.Equal(got.Labels, want) || got.SchedulerName != "open-cluster-management" {
		t.Errorf("labels %v, want %v, by %s", got.Labels, want, got.SchedulerName)
	}
	profile := multiclusterv1alpha1.ClusterProfileReference{APIVersion: "multicluster.x-k8s.io/v1alpha1", Kind: "ClusterProfile",
		Namespace: "ns", Name: "rome"}
	if len(got.Decisions) != 2 || got.Decisions[1].ClusterProfileRef != profile || got.Decisions[1].Reason != "why" {
		t.Errorf("decisions %+v", got.Decisions)
	}
	version := got.ResourceVersion
	reconcile()
	if read(); got.ResourceVersion != version {
		t.Error("what is right is written again")
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(of), of); err != nil {
		t.Fatal(err)
	}
	of.Status.Decisions = of.Status.Decisions[1:]
	if err := c.Update(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	reconcile()
	if read(); len(got.Decisions) != 1 || got.Decisions[0].ClusterProfileRef.Name != "rome" {
		t.Errorf("decisions %+v", got.Decisions)
	}
	if err := c.Delete(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	reconcile()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(got), got); !apierrors.IsNotFound(err) {
		t.Errorf("it stays: %v", err)
	}
}

// NX-04: decisions of other schedulers are left alone, also under the same name.
func TestDecisionsOfOthers(t *testing.T) {
	t.Parallel()
	other := shown()
	other.SchedulerName = "other"
	for name, objects := range map[string][]client.Object{"beside one": {other.DeepCopy(), decided("paris")}, "alone": {other.DeepCopy()}} {
		c, reconcile := setUp(t, objects...)
		reconcile()
		got := shown()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(got), got); err != nil || got.SchedulerName != "other" || len(got.Decisions) > 0 {
			t.Errorf("%s: %+v: %v", name, got, err)
		}
	}
}
