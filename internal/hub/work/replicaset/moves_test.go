package replicaset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/debounce"
)

const (
	graceful = "capstan.io/graceful-move"
	maxLost  = "capstan.io/max-lost-clusters"
)

// moving is a hub with the set ns/web, with annotations, on clusters that are available.
func moving(t *testing.T, annotations map[string]string, selected ...string) *hub {
	t.Helper()
	set := webSet(ref("p"))
	set.Annotations = annotations
	all := append([]client.Object{set}, decidedPlacement("p", selected...)...)
	for i := range 10 {
		all = append(all, member(fmt.Sprintf("c%d", i), "mine"))
	}
	h := wary(t, append(all, member("theirs", "theirs"))...)
	for i := range 10 {
		h.setAvailable(t, fmt.Sprintf("c%d", i), metav1.ConditionTrue)
	}
	h.reconcile(t)
	h.report(t, selected, "Applied", "True", "Available", "True")
	return h
}

// setAvailable sets whether a cluster is available.
func (h *hub) setAvailable(t *testing.T, name string, available metav1.ConditionStatus) {
	t.Helper()
	c := &clusterv1.ManagedCluster{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: name}, c); err != nil {
		t.Fatal(err)
	}
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: "ManagedClusterConditionAvailable", Status: available, Reason: "R"})
	if err := h.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// reconciled reconciles, and again when clusters have been deselected for long enough.
func (h *hub) reconciled(t *testing.T) {
	t.Helper()
	h.reconcile(t)
	h.clock.Step(debounce.Delay)
	h.reconcile(t)
}

func (h *hub) number(t *testing.T, n int32) {
	t.Helper()
	p := &clusterv1beta1.Placement{}
	if err := h.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "p"}, p); err != nil {
		t.Fatal(err)
	}
	p.Spec.NumberOfClusters = ptr.To(n)
	if err := h.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// A cluster keeps its work until the one that takes its place has it available, one for one.
func TestGracefulMove(t *testing.T) {
	t.Parallel()
	h := moving(t, map[string]string{graceful: "true"}, "c1", "c2")
	h.decide(t, decision("p", 1, 0, "c3", "c4"))
	h.reconciled(t)
	h.expectClusters(t, "c1", "c2", "c3", "c4")
	h.report(t, []string{"c3"}, "Applied", "True", "Available", "False")
	h.reconciled(t)
	h.expectClusters(t, "c1", "c2", "c3", "c4")
	h.setAvailable(t, "c1", metav1.ConditionUnknown)
	h.report(t, []string{"c3"}, "Available", "True")
	h.reconciled(t)
	h.expectClusters(t, "c2", "c3", "c4") // one that is lost goes first
	h.report(t, []string{"c4"}, "Applied", "True", "Available", "True")
	h.reconciled(t)
	h.expectClusters(t, "c3", "c4")
}

// Which works go at once.
func TestWorksThatGoAtOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		annotations map[string]string
		change      func(*testing.T, *hub)
		want        []string
	}{
		"no annotation": {nil, func(t *testing.T, h *hub) { h.decide(t, decision("p", 1, 0, "c3")) }, []string{"c3"}},
		"switched off": {map[string]string{graceful: "false"},
			func(t *testing.T, h *hub) { h.decide(t, decision("p", 1, 0, "c3")) }, []string{"c3"}},
		"nothing takes its place": {map[string]string{graceful: "true"},
			func(t *testing.T, h *hub) { h.decide(t, decision("p", 1, 0)) }, nil},
		"nothing takes its place yet": {map[string]string{graceful: "true"},
			func(t *testing.T, h *hub) { h.number(t, 1); h.decide(t, decision("p", 1, 0)) }, []string{"c1"}},
		"fewer are wanted": {map[string]string{graceful: "true"},
			func(t *testing.T, h *hub) { h.number(t, 0); h.decide(t, decision("p", 1, 0)) }, nil},
		"no right any more": {map[string]string{graceful: "true", maxLost: "0"}, func(t *testing.T, h *hub) {
			h.edit(t, func(c *clusterv1.ManagedCluster) {
				c.Labels["cluster.open-cluster-management.io/clusterset"] = "theirs"
			})
			h.decide(t, decision("p", 1, 0, "c3"))
		}, []string{"c3"}},
		"no right any more, still decided": {map[string]string{graceful: "true"}, func(t *testing.T, h *hub) {
			h.edit(t, func(c *clusterv1.ManagedCluster) {
				c.Labels["cluster.open-cluster-management.io/clusterset"] = "theirs"
			})
			h.decide(t, decision("p", 1, 0, "c1", "c3"))
		}, []string{"c3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := moving(t, test.annotations, "c1")
			test.change(t, h)
			h.reconciled(t)
			h.expectClusters(t, test.want...)
		})
	}
}

// When more than a share of the clusters is lost at once, nothing moves, and the condition says so.
func TestStormBrake(t *testing.T) {
	t.Parallel()
	h := moving(t, map[string]string{maxLost: "50%"}, "c1", "c2", "c3", "c4")
	h.reconciled(t)
	h.expectCondition(t, "MovesHeld", metav1.ConditionFalse, "AsExpected")
	for _, name := range []string{"c1", "c2", "c3"} {
		h.setAvailable(t, name, metav1.ConditionUnknown)
	}
	h.decide(t, decision("p", 1, 0, "c4", "c5", "c6", "c7"))
	h.reconciled(t)
	h.expectClusters(t, "c1", "c2", "c3", "c4")
	message := h.expectCondition(t, "MovesHeld", metav1.ConditionTrue, "TooManyClustersLost")
	if !strings.HasPrefix(message, "3 of 4 clusters lost at once: c1, c2, c3.") {
		t.Errorf("it says %q", message)
	}
	h.clock.Step(time.Hour)
	h.reconciled(t)
	h.expectClusters(t, "c1", "c2", "c3", "c4")

	h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Annotations[maxLost] = "75%" })
	h.reconciled(t)
	h.expectClusters(t, "c4", "c5", "c6", "c7")
	h.expectCondition(t, "MovesHeld", metav1.ConditionFalse, "AsExpected")
	h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) { delete(set.Annotations, maxLost) })
	h.reconciled(t)
	if meta.FindStatusCondition(h.set(t).Status.Conditions, "MovesHeld") != nil {
		t.Error("a set without the annotation has the condition")
	}
}

// What is no storm moves.
func TestNoStorm(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string][]string{"as many as may": {"c1", "c2"}, "available clusters leave": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := moving(t, map[string]string{maxLost: "2"}, "c1", "c2", "c3", "c4")
			for _, cluster := range silent {
				h.setAvailable(t, cluster, metav1.ConditionUnknown)
			}
			decided := []string{"c3", "c4", "c5", "c6"}
			if silent == nil {
				decided = []string{"c5", "c6", "c7", "c8"}
			}
			h.decide(t, decision("p", 1, 0, decided...))
			h.reconciled(t)
			h.expectClusters(t, decided...)
		})
	}
}

// Clusters that are lost one after the other count as lost at once for a while.
func TestStormThatComesSlowly(t *testing.T) {
	t.Parallel()
	h := moving(t, map[string]string{maxLost: "1"}, "c1", "c2", "c3")
	for _, w := range h.works(t)["c1"] { // whose agent does not answer
		w.Finalizers = []string{"cluster.open-cluster-management.io/manifest-work-cleanup"}
		if err := h.Update(t.Context(), &w); err != nil {
			t.Fatal(err)
		}
	}
	h.setAvailable(t, "c1", metav1.ConditionUnknown)
	h.decide(t, decision("p", 1, 0, "c2", "c3"))
	h.reconciled(t)
	if w := h.works(t)["c1"][0]; w.DeletionTimestamp.IsZero() {
		t.Fatal("the first one does not move")
	}
	h.setAvailable(t, "c2", metav1.ConditionUnknown)
	h.decide(t, decision("p", 1, 0, "c3", "c4"))
	h.reconciled(t)
	h.expectClusters(t, "c1", "c2", "c3")
}

// Clusters that a user has deleted or denied are not lost, however long their agents do not answer.
func TestNoStormByUsers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*testing.T, *hub, *clusterv1.ManagedCluster){
		"deleted": func(t *testing.T, h *hub, c *clusterv1.ManagedCluster) {
			c.Finalizers = []string{"cluster.open-cluster-management.io/api-resource-cleanup"}
			if err := h.Update(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if err := h.Delete(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		},
		"denied": func(t *testing.T, h *hub, c *clusterv1.ManagedCluster) {
			c.Spec.HubAcceptsClient = false
			if err := h.Update(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := moving(t, map[string]string{maxLost: "1"}, "c1", "c2", "c3")
			for _, lost := range []string{"c1", "c2"} {
				h.setAvailable(t, lost, metav1.ConditionUnknown)
				c := &clusterv1.ManagedCluster{}
				if err := h.Get(t.Context(), client.ObjectKey{Name: lost}, c); err != nil {
					t.Fatal(err)
				}
				change(t, h, c)
			}
			h.decide(t, decision("p", 1, 0, "c3", "c4"))
			h.reconciled(t)
			h.expectClusters(t, "c3", "c4")
		})
	}
}

// A set that limits how many clusters are lost is reconciled when one of its clusters is lost or found, and others are not.
func TestLostClustersAreNoticed(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]int{"50%": 1, "": 0} {
		annotations := map[string]string{graceful: "true"}
		if limit != "" {
			annotations[maxLost] = limit
		}
		h := moving(t, annotations, "c1")
		c1, c2 := member("c1", "mine"), member("c2", "mine")
		if got := h.movingFrom(t.Context(), c1); len(got) != want {
			t.Errorf("with the limit %q: %v", limit, got)
		}
		if got := h.movingFrom(t.Context(), c2); len(got) != 0 {
			t.Errorf("of a cluster without a work: %v", got)
		}
	}
	clusterWith := func(status metav1.ConditionStatus) *clusterv1.ManagedCluster {
		c := &clusterv1.ManagedCluster{}
		c.Status.Conditions = []metav1.Condition{{Type: "ManagedClusterConditionAvailable", Status: status}}
		return c
	}
	for _, test := range []struct {
		before, after metav1.ConditionStatus
		want          bool
	}{
		{metav1.ConditionTrue, metav1.ConditionUnknown, true}, {metav1.ConditionUnknown, metav1.ConditionTrue, true},
		{metav1.ConditionTrue, metav1.ConditionTrue, false}, {metav1.ConditionUnknown, metav1.ConditionFalse, false},
	} {
		update := event.UpdateEvent{ObjectOld: clusterWith(test.before), ObjectNew: clusterWith(test.after)}
		if got := availabilityChanged().Update(update); got != test.want {
			t.Errorf("from %s to %s: %t", test.before, test.after, got)
		}
	}
}
