package replicaset

import (
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/debounce"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// editWork has somebody else change the spec of the work of a cluster.
func (h *hub) editWork(t *testing.T, cluster string) {
	t.Helper()
	w := h.works(t)[cluster][0]
	w.Spec = template("3")
	w.Generation++
	if err := h.Update(t.Context(), &w); err != nil {
		t.Fatal(err)
	}
}

func (h *hub) deleteWork(t *testing.T, cluster string) {
	t.Helper()
	w := h.works(t)[cluster][0]
	if err := h.Delete(t.Context(), &w); err != nil {
		t.Fatal(err)
	}
}

// MR-04: who edits or deletes works of a rollout that has stopped does not send it further. The works are restored, and the rollout goes on
// when the cluster that has failed succeeds.
func TestStopOutlastsOthers(t *testing.T) {
	t.Parallel()
	failed := []string{"Applied", "True", "Progressing", "True", "Degraded", "True"}
	for name, test := range map[string]struct {
		deadline string
		reports  []string
		disturb  func(*testing.T, *hub, string)
	}{
		"failed, edited":     {"", failed, func(t *testing.T, h *hub, cluster string) { h.editWork(t, cluster) }},
		"failed, deleted":    {"", failed, func(t *testing.T, h *hub, cluster string) { h.deleteWork(t, cluster) }},
		"timed out, edited":  {"10m", failed[:4], func(t *testing.T, h *hub, cluster string) { h.editWork(t, cluster) }},
		"timed out, deleted": {"10m", failed[:4], func(t *testing.T, h *hub, cluster string) { h.deleteWork(t, cluster) }},
		"failed, deleted after a while": {"", failed, func(t *testing.T, h *hub, cluster string) {
			h.startDeletion(t, cluster)
			h.clock.Step(patience)
			h.expectStopped(t, cluster)
			h.endDeletion(t, cluster)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := []string{"c1", "c2", "c3", "c4"}
			set := webSet(progressive(2, clusterv1alpha1.RolloutConfig{ProgressDeadline: test.deadline}))
			h := newHub(t, objects(set, decidedPlacement("p", all...))...)
			h.succeed(t, all...)
			h.reconcile(t)
			h.setTemplate(t, "2")
			h.reconcile(t)
			h.report(t, []string{"c1"}, test.reports...)
			h.report(t, []string{"c2"}, "Applied", "True", "Progressing", "False")
			h.clock.Step(10 * time.Minute)
			h.expectStopped(t, "before")

			h.editWork(t, "c2")
			test.disturb(t, h, "c1")
			h.expectStopped(t, "disturbed")
			half := map[string]string{"c1": "2", "c2": "2", "c3": "1", "c4": "1"}
			if got := h.versions(t); !maps.Equal(got, half) {
				t.Errorf("versions %v, want %v", got, half)
			}
			h.report(t, []string{"c1"}, "Applied", "True", "Progressing", "True", "Degraded", "False")
			h.report(t, []string{"c2"}, "Applied", "True", "Progressing", "False")
			h.expectStopped(t, "in progress again")

			h.report(t, []string{"c1"}, "Progressing", "False")
			h.reconcile(t)
			if got := h.versions(t); got["c3"] != "2" || got["c4"] != "2" {
				t.Errorf("after the success, versions are %v", got)
			}
		})
	}
}

// expectStopped reconciles, and checks that the rollout has stopped because of one cluster.
func (h *hub) expectStopped(t *testing.T, when string) {
	t.Helper()
	for range 2 {
		h.reconcile(t)
	}
	if message := h.expectCondition(t, "PlacementRolledOut", metav1.ConditionFalse, "Progressing"); !strings.Contains(message,
		"stopped: 1 failure in the whole placement (c1)") {
		t.Errorf("%s: message %q", when, message)
	}
}

// A work that has succeeded and is changed by others is no failure, however long ago it was written.
func TestRepairsAreNoFailures(t *testing.T) {
	t.Parallel()
	set := webSet(progressive(1, clusterv1alpha1.RolloutConfig{ProgressDeadline: "10m"}))
	h := newHub(t, objects(set, decidedPlacement("p", "c1", "c2"))...)
	h.succeed(t, "c1", "c2")
	h.reconcile(t)
	h.clock.Step(time.Hour)
	for _, disturb := range []func(*testing.T, string){h.editWork, h.deleteWork} {
		for _, cluster := range []string{"c1", "c2"} {
			disturb(t, cluster)
		}
		h.reconcile(t)
		if got := h.versions(t); !maps.Equal(got, map[string]string{"c1": "1", "c2": "1"}) {
			t.Errorf("versions %v", got)
		}
		h.clock.Step(9 * time.Minute)
		h.reconcile(t)
		if message := h.expectCondition(t, "PlacementRolledOut", metav1.ConditionFalse, "Progressing"); !strings.Contains(message,
			"2 in progress") {
			t.Errorf("message %q", message)
		}
		h.report(t, []string{"c1", "c2"}, "Applied", "True", "Progressing", "False")
		h.reconcile(t)
		h.expectCondition(t, "PlacementRolledOut", metav1.ConditionTrue, "Complete")
	}
}

// What others change is restored at once, and what overrides change is rolled out.
func TestRepairsWithOverrides(t *testing.T) {
	t.Parallel()
	both := []string{"c1", "c2"}
	set := webSet(progressive(1, clusterv1alpha1.RolloutConfig{}))
	set.Annotations = map[string]string{fleet.AnnotationOverrides: `[{set: [{path: /data/region, claim: region}]}]`}
	h := newHub(t, objects(set, decidedPlacement("p", both...))...)
	for _, cluster := range both {
		h.create(t, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}})
	}
	moveTo := func(region string) {
		t.Helper()
		for _, name := range both {
			cluster := &clusterv1.ManagedCluster{}
			if err := h.Get(t.Context(), client.ObjectKey{Name: name}, cluster); err != nil {
				t.Fatal(err)
			}
			cluster.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "region", Value: region}}
			if err := h.Update(t.Context(), cluster); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect := func(when string, regions ...string) {
		t.Helper()
		for i, region := range regions {
			if raw := string(h.works(t)[both[i]][0].Spec.Workload.Manifests[0].Raw); !strings.Contains(raw, `"region":"`+region+`"`) {
				t.Errorf("%s: %s has %s", when, both[i], raw)
			}
		}
	}
	moveTo("eu")
	h.succeed(t, both...)
	h.reconcile(t)
	for _, cluster := range both {
		h.editWork(t, cluster)
	}
	h.reconcile(t)
	expect("edited", "eu", "eu")
	h.report(t, both, "Applied", "True", "Progressing", "False")
	h.reconcile(t)
	moveTo("us")
	h.reconcile(t)
	expect("moved", "us", "eu")
}

// MR-04: a set that is deleted and created again is rolled out at its pace: what becomes of the works of the former one is no progress.
func TestSetIsCreatedAgain(t *testing.T) {
	t.Parallel()
	all := []string{"c1", "c2", "c3"}
	succeeded := []string{"Applied", "True", "Progressing", "False"}
	startDeletions := func(t *testing.T, h *hub) {
		t.Helper()
		for _, cluster := range all {
			h.startDeletion(t, cluster)
		}
	}
	for name, test := range map[string]struct {
		// before is done while there is the former set, meanwhile when it has gone, and after when there is the next.
		before, meanwhile, after func(*testing.T, *hub)
	}{
		"at once":       {before: startDeletions},
		"after a while": {before: startDeletions, meanwhile: func(t *testing.T, h *hub) { h.reconcile(t) }},
		"while a hub is down": {before: startDeletions, meanwhile: func(_ *testing.T, h *hub) {
			h.Controller = New(h.WithWatch, h.WithWatch, events.NewFakeRecorder(100), Options{TrustDecisions: true, Clock: h.clock})
		}},
		"before the works are known to go": {after: func(t *testing.T, h *hub) {
			h.reconcile(t)
			startDeletions(t, h)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, objects(webSet(ref("p")), decidedPlacement("p", all...))...)
			for range 2 {
				h.reconcile(t)
				h.report(t, all, succeeded...)
			}
			do := func(step func(*testing.T, *hub)) {
				t.Helper()
				if step != nil {
					step(t, h)
				}
			}
			do(test.before)
			h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Finalizers = nil })
			if err := h.Delete(t.Context(), h.set(t)); err != nil {
				t.Fatal(err)
			}
			do(test.meanwhile)
			next := webSet(progressive(1, clusterv1alpha1.RolloutConfig{}))
			next.UID, next.CreationTimestamp = "next", metav1.NewTime(noon.Add(time.Hour))
			h.create(t, next)
			do(test.after)
			for range 2 {
				h.reconcile(t)
			}
			for _, cluster := range all {
				h.endDeletion(t, cluster)
			}
			for range 2 {
				h.reconcile(t)
				h.expectClusters(t, "c1")
			}
		})
	}
}

// MR-04: clusters that are selected again while the set still deletes their works get new ones at the pace of the rollout.
func TestSelectedAgain(t *testing.T) {
	t.Parallel()
	all := []string{"c1", "c2", "c3"}
	h := newHub(t, objects(webSet(progressive(1, clusterv1alpha1.RolloutConfig{})), decidedPlacement("p", all...))...)
	h.succeed(t, all...)
	for _, list := range h.works(t) {
		list[0].Finalizers = []string{fleet.FinalizerManifestWorkCleanup}
		if err := h.Update(t.Context(), &list[0]); err != nil {
			t.Fatal(err)
		}
	}
	h.decide(t, decision("p", 1, 0, "c1"))
	h.reconcile(t)
	h.clock.Step(debounce.Delay)
	h.reconcile(t)
	h.clock.SetTime(h.works(t)["c2"][0].DeletionTimestamp.Time)
	h.decide(t, decision("p", 1, 0, all...))
	for range 2 {
		h.reconcile(t)
	}
	for _, cluster := range []string{"c2", "c3"} {
		h.endDeletion(t, cluster)
	}
	for range 2 {
		h.reconcile(t)
		h.expectClusters(t, "c1", "c2")
	}
}
