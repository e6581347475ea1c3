package placement

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// decisionOption changes a PlacementDecision.
type decisionOption func(*clusterv1beta1.PlacementDecision)

// newDecision has the label of the placement web.
func newDecision(name string, options ...decisionOption) *clusterv1beta1.PlacementDecision {
	d := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name,
		Labels: map[string]string{fleet.LabelPlacement: "web"}}}
	for _, option := range options {
		option(d)
	}
	return d
}

func withPlacementLabel(placement string) decisionOption {
	return func(d *clusterv1beta1.PlacementDecision) {
		d.Labels = map[string]string{fleet.LabelPlacement: placement}
		maps.DeleteFunc(d.Labels, func(_, value string) bool { return value == "" })
	}
}

func withController(apiVersion, kind string, uid types.UID) decisionOption {
	yes := true
	return func(d *clusterv1beta1.PlacementDecision) {
		d.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web", UID: uid, Controller: &yes}}
	}
}

func withPlacement(uid types.UID) decisionOption {
	return withController(clusterv1beta1.GroupVersion.String(), "Placement", uid)
}

func withClusters(clusters ...string) decisionOption {
	return func(d *clusterv1beta1.PlacementDecision) {
		d.Status.Decisions = nil
		for _, name := range clusters {
			d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: name})
		}
	}
}

// schedulePlacement adds the placement web and schedules it.
func (b *controllerTest) schedulePlacement(t *testing.T, spec clusterv1beta1.PlacementSpec) {
	t.Helper()
	p := newPlacement(spec)
	if err := b.client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	b.scheduler.SetPlacement(p)
	b.reconcile(t)
}

func (b *controllerTest) decision(t *testing.T, name string) *clusterv1beta1.PlacementDecision {
	t.Helper()
	d := &clusterv1beta1.PlacementDecision{}
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: name}, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// editDecision changes the PlacementDecision web-decision-1, and returns the placements that the controller enqueues.
func (b *controllerTest) editDecision(t *testing.T, how ...decisionOption) (waiting []string) {
	t.Helper()
	before := b.decision(t, "web-decision-1")
	after := before.DeepCopy()
	for _, option := range how {
		option(after)
	}
	wanted := after.Status
	if err := b.client.Update(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	after.Status = wanted
	if err := b.client.Status().Update(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	return b.handle(t, before, after)
}

// addDecision creates a PlacementDecision, and returns the placements that the controller enqueues.
func (b *controllerTest) addDecision(t *testing.T, d *clusterv1beta1.PlacementDecision) (waiting []string) {
	t.Helper()
	wanted := d.Status
	if err := b.client.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	empty := d.DeepCopy()
	d.Status = wanted
	if err := b.client.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return append(b.handle(t, nil, empty), b.handle(t, empty, d)...)
}

// deleteDecision deletes a PlacementDecision, and returns the placements that the controller enqueues.
func (b *controllerTest) deleteDecision(t *testing.T, name string) (waiting []string) {
	t.Helper()
	d := b.decision(t, name)
	if err := b.client.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return b.handle(t, d, nil)
}

// handle returns the placements that the controller enqueues after a change.
func (b *controllerTest) handle(t *testing.T, before, after *clusterv1beta1.PlacementDecision) (waiting []string) {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	b.handleDecision(t.Context(), b.client, q, before, after)
	for q.Len() > 0 {
		next, _ := q.Get()
		waiting = append(waiting, next.Name)
		q.Done(next)
	}
	return waiting
}

// wantDecision checks that a PlacementDecision is as the hub has written it.
func (b *controllerTest) wantDecision(t *testing.T, name string, clusters ...string) {
	t.Helper()
	d := b.decision(t, name)
	want := map[string]string{fleet.LabelPlacement: "web", fleet.LabelDecisionGroupIndex: "0", fleet.LabelDecisionGroupName: ""}
	if diff := cmp.Diff(want, d.Labels); diff != "" || !metav1.IsControlledBy(d, newPlacement(clusterv1beta1.PlacementSpec{})) {
		t.Errorf("%s has the owners %v, and labels (-want +got):\n%s", name, d.OwnerReferences, diff)
	}
	if diff := cmp.Diff(clusters, b.selected(t)); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
}
