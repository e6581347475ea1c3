package decisions

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/placement"
)

// byScore is a hub that sorts by score.
func byScore() *fakeHub {
	h := newHub()
	h.owner.Spec.SortBy = clusterv1beta1.SortByScore
	return h
}

func (h *fakeHub) wantHeldBack(t *testing.T, plan *Plan) {
	t.Helper()
	if len(plan.Writes)+len(plan.Deletes) != 0 || !plan.ScoresDue.Equal(h.owner.Status.LastScoreUpdateTime.Add(h.rateLimit)) {
		t.Errorf("a new order is written at once, or not due after a minute: %+v", plan)
	}
}

// PL-14: if scores move a cluster from one PlacementDecision to the next, this is written with the rate limit.
func TestOrderIsRateLimitedAcrossObjects(t *testing.T) {
	t.Parallel()
	h := byScore()
	clusters := numbered(1, 150)
	h.plan(group("", clusters...))
	clusters[99], clusters[100] = clusters[100], clusters[99]
	h.now = start.Add(59 * time.Second)
	h.wantHeldBack(t, h.plan(group("", clusters...)))

	h.now = start.Add(time.Minute)
	if plan := h.plan(group("", clusters...)); len(plan.Writes) != 2 || !plan.ScoresDue.IsZero() {
		t.Errorf("not written when it is due: %+v", plan)
	}
	h.check(t, group("", clusters...))
	// Other clusters are written at once.
	clusters = append([]string{"first"}, clusters[:149]...)
	h.plan(group("", clusters...))
	h.check(t, group("", clusters...))
}

// PL-14, PL-16: objects are numbered in the order of their clusters, so that what is stored is not taken for another order.
func TestNumbersFollowTheOrder(t *testing.T) {
	t.Parallel()
	clusters := numbered(1, 150)
	for name, test := range map[string]struct {
		taken  []string
		edit   func(*fakeHub)
		writes int
	}{
		"the first object is deleted": {nil, func(h *fakeHub) {
			h.objects = slices.DeleteFunc(h.objects, func(o *clusterv1beta1.PlacementDecision) bool { return o.Name == "p-decision-1" })
		}, 1},
		"a name that was taken is free": {[]string{"p-decision-1"}, func(h *fakeHub) { h.taken = nil }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := byScore()
			h.taken = test.taken
			h.plan(group("", clusters...))
			test.edit(h)
			if plan := h.plan(group("", clusters...)); len(plan.Writes) != test.writes {
				t.Errorf("%d objects are written, want %d", len(plan.Writes), test.writes)
			}
			if diff := cmp.Diff(map[string][]string{"p-decision-1": clusters[:100], "p-decision-2": clusters[100:]}, h.content()); diff != "" {
				t.Error(diff)
			}
			h.now = start.Add(time.Second)
			if plan := h.plan(group("", clusters...)); len(plan.Writes)+len(plan.Deletes) > 0 {
				t.Errorf("nothing has changed, and yet: %+v", plan)
			}
		})
	}
}

// PL-14, PL-15: the same applies between groups of one name, but not if another property moves the cluster.
func TestOrderIsRateLimitedAcrossGroups(t *testing.T) {
	t.Parallel()
	h := byScore()
	h.plan(group("canary", "c1"), group("", "c2", "c3"), group("", "c4"))
	h.now = start.Add(time.Second)
	h.wantHeldBack(t, h.plan(group("canary", "c1"), group("", "c4", "c3"), group("", "c2")))
	if plan := h.plan(group("canary", "c1"), group("", "c2", "c3"), group("", "c4")); !plan.ScoresDue.IsZero() {
		t.Error("an order is due that has not changed")
	}
	for _, groups := range [][]placement.Group{
		{group("canary", "c2"), group("", "c1", "c3"), group("", "c4")},
		{group("canary", "c2"), group("", "c1", "c3", "c4")},
		{group("canary", "c2"), group("", "c1"), group("", "c3", "c4")},
		{group("canary", "c2"), group("", "c1", "c3"), group("", "c4")},
	} {
		h.plan(groups...)
		h.check(t, groups...)
	}
}

// A decision that lists a cluster twice is repaired at once, although the number of clusters is right.
func TestDuplicatesAreNotRateLimited(t *testing.T) {
	t.Parallel()
	for _, sortBy := range []clusterv1beta1.SortBy{clusterv1beta1.SortByClusterName, clusterv1beta1.SortByScore} {
		h := newHub()
		h.owner.Spec.SortBy = sortBy
		h.plan(group("", "c1", "c2"))
		h.objects[0].Status.Decisions[1].ClusterName = "c1"
		h.plan(group("", "c1", "c2"))
		h.check(t, group("", "c1", "c2"))
	}
}

// PL-14: the objects tell when scores were written, also if the status of the placement was not written afterwards.
func TestScoresWrittenIsStored(t *testing.T) {
	t.Parallel()
	h := newHub()
	h.plan(group("", "c1"))
	h.owner.Status.LastScoreUpdateTime = &metav1.Time{Time: start.Add(-time.Hour)}
	h.objects[0].ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "a", Subresource: "status", Time: &metav1.Time{Time: start.Add(-time.Minute)}},
		{Manager: "b", Subresource: "status", Time: &metav1.Time{Time: start}},
		{Manager: "c", Time: &metav1.Time{Time: start.Add(time.Minute)}}, // of labels
	}
	if _, err := Strip(h.objects[0]); err != nil || len(h.objects[0].ManagedFields) != 1 || h.objects[0].ManagedFields[0].Manager != "" {
		t.Errorf("there is more left than needed: %v, %v", h.objects[0].ManagedFields, err)
	}
	changed := group("", "c1")
	changed.Decisions[0].Score = 2
	h.now = start.Add(59 * time.Second)
	if plan := h.plan(changed); len(plan.Writes) > 0 || !plan.ScoresWritten.Equal(start) || !plan.ScoresDue.Equal(start.Add(time.Minute)) {
		t.Errorf("%+v", plan)
	}
	h.now = start.Add(time.Minute)
	if plan := h.plan(changed); len(plan.Writes) != 1 || plan.Writes[0].Decision.ManagedFields != nil {
		t.Errorf("%+v", plan)
	}
	// A write time in the future does not hold them back.
	h.objects[0].ManagedFields = []metav1.ManagedFieldsEntry{{Subresource: "status", Time: &metav1.Time{Time: start.Add(time.Hour)}}}
	if plan := h.plan(group("", "c1")); len(plan.Writes) != 1 {
		t.Errorf("%+v", plan)
	}
}

// PL-26, P11: objects of a placement that is misconfigured are restored, and otherwise left as they are.
func TestMisconfigured(t *testing.T) {
	t.Parallel()
	h := byScore()
	h.plan(group("canary", "c2"), group("", "c9", "c5"), group("", "c3"))
	kept := []placement.Group{{Name: "canary", Decisions: missingDecisions("c2")}, {Decisions: missingDecisions("c9", "c5")},
		{Decisions: missingDecisions("c3")}}
	keep := func() *Plan {
		plan := New(h.owner, &placement.Result{Misconfigured: &placement.Misconfiguration{}, Groups: kept}, h.objects, nil, h.now)
		h.apply(plan)
		return plan
	}
	if plan := keep(); len(plan.Writes)+len(plan.Deletes) > 0 || !plan.ScoresDue.IsZero() {
		t.Fatalf("nothing has changed, and yet: %+v", plan)
	}
	h.objects[1].Status.Decisions = append(h.objects[1].Status.Decisions[:1], clusterv1beta1.ClusterDecision{ClusterName: "added"})
	h.objects = slices.Delete(h.objects, 0, 1)
	if plan := keep(); len(plan.Writes) != 2 {
		t.Errorf("%+v", plan)
	}
	h.check(t, kept...)
	reasons := map[string]string{}
	for _, object := range h.objects {
		for _, decision := range object.Status.Decisions {
			reasons[decision.ClusterName] = decision.Reason
		}
	}
	if diff := cmp.Diff(map[string]string{"c2": "lost", "c9": "because", "c5": "lost", "c3": "because"}, reasons); diff != "" {
		t.Error(diff)
	}
}

func missingDecisions(clusters ...string) (decisions []clusterv1beta1.ClusterDecision) {
	for _, name := range clusters {
		decisions = append(decisions, clusterv1beta1.ClusterDecision{ClusterName: name, Reason: "lost"})
	}
	return decisions
}

// PL-16: names of objects of other owners are not used until they are free.
func TestTakenNames(t *testing.T) {
	t.Parallel()
	h := newHub()
	h.taken = []string{"p-decision-1"}
	plan := h.plan(group("", numbered(1, 150)...))
	if len(plan.Writes) != 2 || plan.Writes[0].Decision.Name != "p-decision-2" || plan.Writes[1].Decision.Name != "p-decision-3" {
		t.Errorf("%+v", plan.Writes)
	}
	h.taken = nil
	h.plan(group("", numbered(1, 150)...))
	h.check(t, group("", numbered(1, 150)...))
}

// PL-16, PL-27: an object with finalizers that is being deleted is used until it is gone, as its name is taken.
func TestDeletionIsWaitedFor(t *testing.T) {
	t.Parallel()
	h := newHub()
	h.plan(group("", numbered(1, 150)...))
	for _, object := range h.objects {
		object.DeletionTimestamp = &metav1.Time{Time: start}
	}
	if plan := h.plan(group("", "c0001")); len(plan.Writes) != 1 || plan.Writes[0].Create || len(plan.Deletes) > 0 {
		t.Errorf("%+v", plan)
	}
}

func TestPlacementNameOf(t *testing.T) {
	t.Parallel()
	for name, placement := range map[string]string{
		"web-decision-1": "web", "web-decision-1-decision-12": "web-decision-1", "web-decision-": "", "web-decision-x": "", "web": "",
		"web-decision--1": "",
	} {
		if got := PlacementNameOf(name); got != placement {
			t.Errorf("%s is named after %q", name, got)
		}
	}
}
