package replicaset

import (
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// startDeletion deletes the work of a cluster whose agent does not clean up, and sets the clock to that time. As on the API server, that is
// a generation.
func (h *hub) startDeletion(t *testing.T, cluster string) {
	t.Helper()
	w := h.works(t)[cluster][0]
	w.Finalizers = []string{fleet.FinalizerManifestWorkCleanup}
	w.Generation++
	if err := h.Update(t.Context(), &w); err != nil {
		t.Fatal(err)
	}
	if err := h.Delete(t.Context(), &w); err != nil {
		t.Fatal(err)
	}
	h.clock.SetTime(h.works(t)[cluster][0].DeletionTimestamp.Time)
}

// endDeletion has the agent of a cluster clean up after all.
func (h *hub) endDeletion(t *testing.T, cluster string) {
	t.Helper()
	w := h.works(t)[cluster][0]
	w.Finalizers = nil
	if err := h.Update(t.Context(), &w); err != nil {
		t.Fatal(err)
	}
}

// hindrances keep c1 from getting a template.
var hindrances = map[string]struct {
	hinder, free func(*testing.T, *hub)
	// condition is which one says so meanwhile, with its reason, and rolledOut what PlacementRolledOut says.
	condition, reason, says, rolledOut string
}{
	"being deleted": {
		hinder:    func(t *testing.T, h *hub) { h.startDeletion(t, "c1") },
		free:      func(t *testing.T, h *hub) { h.endDeletion(t, "c1") },
		condition: "PlacementRolledOut", reason: "Progressing", says: "being deleted: ManifestWorks c1/web-",
		rolledOut: "being deleted: ManifestWorks c1/web-",
	},
	"cannot be written": {
		hinder:    func(_ *testing.T, h *hub) { h.refuse["c1"] = true },
		free:      func(_ *testing.T, h *hub) { delete(h.refuse, "c1") },
		condition: "ManifestworkApplied", reason: "NotAsExpected", says: "c1 does not want it",
		rolledOut: "the works of c1 cannot be written",
	},
}

// expectVersions reconciles, with an error where a write fails, and checks which versions of the template c1 and c2 have.
func (h *hub) expectVersions(t *testing.T, when, c1, c2 string) {
	t.Helper()
	for range 2 {
		_, _ = h.Reconcile(t.Context(), request)
	}
	if got := h.versions(t); !maps.Equal(got, map[string]string{"c1": c1, "c2": c2}) {
		t.Errorf("%s: versions %v", when, got)
	}
}

// MR-04: a cluster whose work cannot be written, or is being deleted and does not go, holds up the rollout on others for five minutes at
// most, with a deadline or without. It gets the change when it can.
func TestObstaclesToRollouts(t *testing.T) {
	t.Parallel()
	for name, test := range hindrances {
		for _, deadline := range []string{"", "10m"} {
			t.Run(name+", deadline: "+deadline, func(t *testing.T) {
				t.Parallel()
				both := []string{"c1", "c2"}
				set := webSet(progressive(1, clusterv1alpha1.RolloutConfig{ProgressDeadline: deadline}))
				h := newHub(t, objects(set, decidedPlacement("p", both...))...)
				h.succeed(t, both...)
				test.hinder(t, h)
				h.setTemplate(t, "2")
				h.expectVersions(t, "at first", "1", "1")
				h.clock.Step(patience)
				h.expectVersions(t, "after five minutes", "1", "2")
				if message := h.expectCondition(t, test.condition, metav1.ConditionFalse, test.reason); !strings.Contains(message, test.says) {
					t.Errorf("message %q", message)
				}
				h.report(t, []string{"c2"}, "Applied", "True", "Progressing", "False")
				test.free(t, h)
				h.clock.Step(patience)
				h.expectVersions(t, "at last", "2", "2")
			})
		}
	}
}

// MR-04: what could not be tried where it is to be tried first comes to no other cluster, however long that takes.
func TestObstaclesToCanaries(t *testing.T) {
	t.Parallel()
	for name, test := range hindrances {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			canary := progressive(1, clusterv1alpha1.RolloutConfig{})
			canary.RolloutStrategy.Progressive.MandatoryDecisionGroups = mandatory(0)
			h := newHub(t, append(objects(webSet(canary), decidedPlacement("p", "c1")), decision("p", 2, 1, "c2"))...)
			both := []string{"c1", "c2"}
			h.succeed(t, both...)
			test.hinder(t, h)
			h.setTemplate(t, "2")
			for _, when := range []string{"at first", "after five minutes", "after ten minutes"} {
				h.expectVersions(t, when, "1", "1")
				h.clock.Step(patience)
			}
			if message := h.expectCondition(t, "PlacementRolledOut", metav1.ConditionFalse, "Progressing"); !strings.Contains(message,
				test.rolledOut) {
				t.Errorf("message %q", message)
			}
			test.free(t, h)
			h.expectVersions(t, "when it can be tried", "2", "1")
			h.report(t, both, "Applied", "True", "Progressing", "False")
			h.expectVersions(t, "when it has succeeded", "2", "2")
		})
	}
}

// Gap W11: a revision is not good while a cluster is left out of its rollout, and so may not take it well.
func TestNoGoodRevisionBehindObstacles(t *testing.T) {
	t.Parallel()
	for name, test := range hindrances {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := rolledOut(t)
			others := []string{"c2", "c3", "c4"}
			test.hinder(t, h)
			h.setTemplate(t, "2")
			settle := func(clusters ...string) {
				t.Helper()
				for range 4 {
					h.clock.Step(patience)
					for range 2 { // the second time, nothing is tried again
						_, _ = h.Reconcile(t.Context(), request)
					}
					h.report(t, clusters, "Applied", "True", "Progressing", "False")
				}
			}
			settle(others...)
			for _, cluster := range others {
				if got := h.versions(t)[cluster]; got != "2" {
					t.Errorf("%s has version %s", cluster, got)
				}
			}
			if state := h.history(t).current().State; state != "" {
				t.Errorf("without c1, the revision is %s", state)
			}
			test.free(t, h)
			settle("c1", "c2", "c3", "c4")
			if state := h.history(t).current().State; state != good {
				t.Errorf("with all clusters, the revision is %q", state)
			}
		})
	}
}

// MR-04: a cluster that has begun and whose work is being deleted, or cannot be restored, takes no place for more than five minutes either,
// unless there is a deadline that ends that. One that has failed stays so.
func TestObstaclesWhileRollingOut(t *testing.T) {
	t.Parallel()
	progressing := []string{"Applied", "True", "Progressing", "True"}
	degraded := append(slices.Clone(progressing), "Degraded", "True")
	for name, test := range map[string]struct {
		deadline string
		reports  []string
		// c2 is the version that this cluster has after five minutes.
		c2 string
	}{
		"in progress":                  {"", progressing, "2"},
		"in progress, with a deadline": {"10m", progressing, "1"},
		"failed":                       {"", degraded, "1"},
	} {
		for why, hindrance := range hindrances {
			t.Run(name+", "+why, func(t *testing.T) {
				t.Parallel()
				both := []string{"c1", "c2"}
				set := webSet(progressive(1, clusterv1alpha1.RolloutConfig{ProgressDeadline: test.deadline}))
				h := newHub(t, objects(set, decidedPlacement("p", both...))...)
				h.succeed(t, both...)
				h.setTemplate(t, "2")
				h.reconcile(t)
				h.report(t, []string{"c1"}, test.reports...)
				h.reconcile(t)
				hindrance.hinder(t, h)
				begun := "2"
				if why == "cannot be written" {
					h.editWork(t, "c1")
					begun = "3"
				}
				h.expectVersions(t, "at first", begun, "1")
				h.clock.Step(patience)
				h.expectVersions(t, "after five minutes", begun, test.c2)
				hindrance.free(t, h)
				h.clock.Step(patience)
				h.expectVersions(t, "at last", "2", test.c2)
			})
		}
	}
}

// MR-04: a hub that starts still knows what has become of clusters whose works are being deleted.
func TestStartWhileWorksAreDeleted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reports []string
		// c2 is the version that this cluster has after five minutes.
		c2 string
	}{
		"silent":      {nil, "2"},
		"in progress": {[]string{"Applied", "True", "Progressing", "True"}, "2"},
		"failed":      {[]string{"Applied", "True", "Progressing", "True", "Degraded", "True"}, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both := []string{"c1", "c2"}
			h := newHub(t, objects(webSet(progressive(1, clusterv1alpha1.RolloutConfig{})), decidedPlacement("p", both...))...)
			h.succeed(t, both...)
			h.setTemplate(t, "2")
			h.reconcile(t)
			h.report(t, []string{"c1"}, test.reports...)
			h.reconcile(t)
			h.startDeletion(t, "c1")
			h.Controller = New(h.WithWatch, h.WithWatch, events.NewFakeRecorder(100), Options{TrustDecisions: true, Clock: h.clock})
			h.expectVersions(t, "at first", "2", "1")
			h.clock.Step(patience)
			h.expectVersions(t, "after five minutes", "2", test.c2)
			h.endDeletion(t, "c1")
			h.expectVersions(t, "at last", "2", test.c2)
		})
	}
}

// MR-04: what keeps a template from being written says nothing of the next one, which is tried at once, and for as long.
func TestObstaclesGoWithTheTemplate(t *testing.T) {
	t.Parallel()
	both := []string{"c1", "c2"}
	for name, test := range map[string]struct {
		free bool // c1 takes the next template
		// c1 and c2 are the versions that these clusters have then.
		c1, c2 string
	}{
		"accepted":      {true, "3", "2"},
		"refused again": {false, "1", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := webSet(progressive(1, clusterv1alpha1.RolloutConfig{}))
			h := newHub(t, objects(set, decidedPlacement("p", both...))...)
			h.succeed(t, both...)
			h.refuse["c1"] = true
			h.setTemplate(t, "2")
			h.expectVersions(t, "at first", "1", "1")
			h.clock.Step(patience)
			h.expectVersions(t, "after five minutes", "1", "2")
			h.report(t, both, "Applied", "True", "Progressing", "False")
			h.refuse["c1"] = !test.free
			h.setTemplate(t, "3")
			h.expectVersions(t, "with the next template", test.c1, test.c2)
		})
	}
}

// A write that admission refuses is tried again every five minutes, also where the rollout waits for it.
func TestRefusedWritesAreTriedAgain(t *testing.T) {
	t.Parallel()
	canary := progressive(1, clusterv1alpha1.RolloutConfig{})
	canary.RolloutStrategy.Progressive.MandatoryDecisionGroups = mandatory(0)
	for name, placement := range map[string]workv1alpha1.LocalPlacementReference{"all at once": ref("p"), "canary": canary} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, append(objects(webSet(placement), decidedPlacement("p", "c1")), decision("p", 2, 1, "c2"))...)
			h.denied["c1"] = true
			for range 4 {
				if after := h.reconcile(t).RequeueAfter; after != patience {
					t.Errorf("it is tried again after %s", after)
				}
				h.clock.Step(patience)
			}
		})
	}
}

func mandatory(group int32) clusterv1alpha1.MandatoryDecisionGroups {
	return clusterv1alpha1.MandatoryDecisionGroups{
		MandatoryDecisionGroups: []clusterv1alpha1.MandatoryDecisionGroup{{GroupIndex: group}}}
}
