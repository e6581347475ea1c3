package replicaset

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
)

// wary is a hub that does not trust decisions, with a set that is bound to the namespace of ns/web.
func wary(t *testing.T, objects ...client.Object) *hub {
	t.Helper()
	h := newHub(t, append(objects,
		&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "mine"}},
		&clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"}})...)
	h.Controller = New(h.WithWatch, h.WithWatch, events.NewFakeRecorder(100), Options{Clock: h.clock})
	return h
}

func member(name, set string) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{"cluster.open-cluster-management.io/clusterset": set}}}
	c.Spec.HubAcceptsClient = true
	c.Status.Conditions = []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionTrue}}
	return c
}

// edit changes the cluster c1, and returns how many sets that enqueues.
func (h *hub) edit(t *testing.T, edit func(*clusterv1.ManagedCluster)) int {
	t.Helper()
	c := &clusterv1.ManagedCluster{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "c1"}, c); err != nil {
		t.Fatal(err)
	}
	edit(c)
	if err := h.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return len(h.actingOn(t.Context(), c))
}

// "Who may write decisions in a namespace without any bound cluster set runs works as cluster-admin on any cluster, or creates
// ManifestWorks in any namespace of the hub": the attacker names a cluster of others, and a namespace of the hub itself.
func TestForgedDecisionBringsNothing(t *testing.T) {
	t.Parallel()
	forged := decision("p", 2, 0, "theirs", "kube-system")
	h := wary(t, append(objects(webSet(ref("p")), decidedPlacement("p", "c1")), forged, member("c1", "mine"), member("theirs", "theirs"))...)
	h.reconcile(t)
	h.expectClusters(t, "c1")
	message := h.expectCondition(t, "PlacementVerified", metav1.ConditionTrue, "AsExpected")
	for _, want := range []string{"1 cluster selected by 1 placement", "kube-system (there is no such ManagedCluster)",
		"theirs (it is in no ManagedClusterSet with a ManagedClusterSetBinding in namespace ns)"} {
		if !strings.Contains(message, want) {
			t.Errorf("it says %q, want %q", message, want)
		}
	}
}

// The end of what a cluster was selected for is the end of its works, whatever a decision goes on saying; and it gets them again.
func TestWorksFollowTheClusterNotTheDecision(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		leave, back func(*clusterv1.ManagedCluster)
	}{
		"in another set": {
			func(c *clusterv1.ManagedCluster) {
				c.Labels["cluster.open-cluster-management.io/clusterset"] = "theirs"
			},
			func(c *clusterv1.ManagedCluster) { c.Labels["cluster.open-cluster-management.io/clusterset"] = "mine" },
		},
		"denied": {
			func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false },
			func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := wary(t, append(objects(webSet(ref("p")), decidedPlacement("p", "c1")), member("c1", "mine"))...)
			h.reconcile(t)
			h.expectClusters(t, "c1")
			if h.edit(t, test.leave) == 0 {
				t.Error("nobody looks at its works")
			}
			h.reconcile(t)
			h.clock.Step(2 * time.Second)
			h.reconcile(t)
			h.expectClusters(t)
			if h.edit(t, test.back) == 0 {
				t.Error("nobody waits for it")
			}
			h.reconcile(t)
			h.expectClusters(t, "c1")
		})
	}
}

// "Those that nobody has decided on get no works", and are no failure.
func TestUndecidedClusterGetsItsWorksWhenAccepted(t *testing.T) {
	t.Parallel()
	undecided := member("c1", "mine")
	undecided.Spec.HubAcceptsClient, undecided.Status.Conditions = false, nil
	h := wary(t, append(objects(webSet(ref("p")), decidedPlacement("p", "c1", "c2")), undecided, member("c2", "mine"))...)
	h.reconcile(t)
	h.expectClusters(t, "c2")
	reads := h.edit(t, func(c *clusterv1.ManagedCluster) {
		c.Spec.HubAcceptsClient = true
		c.Status.Conditions = []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionTrue}}
	})
	if reads != 1 {
		t.Errorf("%d sets are asked for", reads)
	}
	h.reconcile(t)
	h.expectClusters(t, "c1", "c2")
}

// A cluster from a backup without status keeps its work until the hub has accepted it again, and gets changes then.
func TestRestoredClusterKeepsItsWorks(t *testing.T) {
	t.Parallel()
	h := wary(t, append(objects(webSet(ref("p")), decidedPlacement("p", "c1")), member("c1", "mine"))...)
	h.reconcile(t)
	h.edit(t, func(c *clusterv1.ManagedCluster) { c.Status.Conditions = nil })
	h.setTemplate(t, "2")
	h.reconcile(t)
	h.clock.Step(time.Hour)
	h.reconcile(t)
	h.expectClusters(t, "c1")
	if got := h.versions(t)["c1"]; got != "1" {
		t.Errorf("before it is set up, it has version %s", got)
	}
	h.edit(t, func(c *clusterv1.ManagedCluster) {
		c.Status.Conditions = []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionTrue}}
	})
	h.reconcile(t)
	if got := h.versions(t)["c1"]; got != "2" {
		t.Errorf("when it is set up, it has version %s", got)
	}
}

// A cluster that another placement selects before the hub has set it up keeps its work until that of the other one is applied.
func TestRestoredClusterChangesPlacements(t *testing.T) {
	t.Parallel()
	for name, refs := range map[string][]workv1alpha1.LocalPlacementReference{
		"selected no more": {ref("p"), ref("q")}, "removed from the set": {ref("q")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := webSet(ref("p"), ref("q"))
			h := wary(t, append(objects(set, decidedPlacement("p", "c1"), decidedPlacement("q")), member("c1", "mine"))...)
			h.reconcile(t)
			h.report(t, []string{"c1"}, "Applied", "True")
			h.edit(t, func(c *clusterv1.ManagedCluster) { c.Status.Conditions = nil })
			h.decide(t, decision("p", 1, 0))
			h.decide(t, decision("q", 1, 0, "c1"))
			h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.PlacementRefs = refs })
			for range 2 {
				h.reconcile(t)
				h.clock.Step(time.Hour)
			}
			if got := h.placements(t, "c1"); !slices.Equal(got, []string{"p"}) {
				t.Errorf("before it is set up, it has works of %v", got)
			}
			h.edit(t, func(c *clusterv1.ManagedCluster) {
				c.Status.Conditions = []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionTrue}}
			})
			for range 2 {
				h.reconcile(t)
				h.report(t, []string{"c1"}, "Applied", "True")
			}
			h.reconcile(t)
			if got := h.placements(t, "c1"); !slices.Equal(got, []string{"q"}) {
				t.Errorf("when it is set up, it has works of %v", got)
			}
		})
	}
}

// A binding that goes, or a set that changes, has the sets of the namespaces looked at again.
func TestBindingGoes(t *testing.T) {
	t.Parallel()
	h := wary(t, append(objects(webSet(ref("p")), decidedPlacement("p", "c1")), member("c1", "mine"))...)
	h.reconcile(t)
	h.expectClusters(t, "c1")
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"}}
	if len(h.ofNamespace(t.Context(), binding)) != 1 ||
		len(h.ofClusterSet(t.Context(), &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "mine"}})) != 1 {
		t.Error("nobody looks at what the binding allowed")
	}
	if err := h.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	h.clock.Step(2 * time.Second)
	h.reconcile(t)
	h.expectClusters(t)
}

// "Controllers handle the refusal as a wait, not an error loop": what admission refuses because of the cluster is said, and tried again
// when the cluster changes.
func TestRefusedWorkWaitsForItsCluster(t *testing.T) {
	t.Parallel()
	h := wary(t, append(objects(webSet(ref("p")), decidedPlacement("p", "c1", "c2")), member("c1", "mine"), member("c2", "mine"))...)
	h.denied["c1"] = true
	h.reconcile(t)
	h.expectClusters(t, "c2")
	if message := h.expectCondition(t, "ManifestworkApplied", metav1.ConditionFalse, "NotAsExpected"); !strings.Contains(message,
		"the cluster is denied") {
		t.Errorf("it says %q", message)
	}
	h.denied["c1"] = false
	if h.edit(t, func(*clusterv1.ManagedCluster) {}) != 1 {
		t.Error("nobody waits for the cluster")
	}
	h.reconcile(t)
	h.expectClusters(t, "c1", "c2")
}
