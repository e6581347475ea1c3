package replicaset

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/debounce"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// progressive is the placement p with a rollout that changes so many clusters at once.
func progressive(concurrency int, config clusterv1alpha1.RolloutConfig) workv1alpha1.LocalPlacementReference {
	n := intstr.FromInt(concurrency)
	return workv1alpha1.LocalPlacementReference{Name: "p", RolloutStrategy: clusterv1alpha1.RolloutStrategy{
		Type: clusterv1alpha1.Progressive, Progressive: &clusterv1alpha1.RolloutProgressive{MaxConcurrency: &n, RolloutConfig: config},
	}}
}

func objects(set *workv1alpha1.ManifestWorkReplicaSet, placements ...[]client.Object) []client.Object {
	all := []client.Object{set}
	for _, p := range placements {
		all = append(all, p...)
	}
	return all
}

// MR-01 MR-02: a work on each cluster, with the labels and the name of the set.
func TestWorksAreMade(t *testing.T) {
	t.Parallel()
	h := newHub(t, objects(webSet(ref("p")), decidedPlacement("p", "c1", "c2"))...)
	h.reconcile(t)
	h.expectClusters(t, "c1", "c2")
	w := h.works(t)["c1"][0]
	want := map[string]string{
		"team": "a", "work.open-cluster-management.io/manifestworkreplicaset": "ns.web", "work.open-cluster-management.io/placementname": "p",
	}
	if !maps.Equal(w.Labels, want) {
		t.Errorf("labels %v, want %v", w.Labels, want)
	}
	if w.GenerateName != "web" || !strings.HasPrefix(w.Name, "web-") {
		t.Errorf("name %q, generated from %q", w.Name, w.GenerateName)
	}
	if w.Name == h.works(t)["c2"][0].Name {
		t.Error("two clusters have works of one name")
	}
	if !manifest.SameSpec(&w.Spec, &h.set(t).Spec.ManifestWorkTemplate) {
		t.Errorf("spec %+v", w.Spec)
	}
}

// MR-02, gap W13: names longer than a label holds are no obstacle: works are made once and found again.
func TestLongNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	set := webSet(ref(long))
	set.Name = long
	h := newHub(t, objects(set, decidedPlacement(long, "c1"))...)
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set)}
	for range 2 {
		if _, err := h.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		h.expectClusters(t, "c1")
	}
	w := h.works(t)["c1"][0]
	const agentAdds = 65 // WK-03
	if len(w.Name)+agentAdds > 253 || len(w.Labels[fleet.LabelManifestWorkReplicaSet]) > 63 || len(w.Labels[fleet.LabelPlacementName]) > 63 {
		t.Errorf("name of %d characters, labels %v", len(w.Name), w.Labels)
	}
	for _, found := range [][]ctrl.Request{h.ofWork(t.Context(), &w), h.ofDecision(t.Context(), decision(long, 1, 0))} {
		if len(found) != 1 || found[0] != request {
			t.Errorf("an event is taken for one of %v", found)
		}
	}
}

// Nothing is written when nothing is due, and each work once when the template changes.
func TestWritesAreFew(t *testing.T) {
	t.Parallel()
	h := newHub(t, objects(webSet(ref("p")), decidedPlacement("p", "c1", "c2", "c3"))...)
	h.reconcile(t)
	if n := h.writes.Swap(0); n != 5 {
		t.Errorf("%d writes, want the finalizer, 3 works and the status", n)
	}
	h.reconcile(t)
	if n := h.writes.Swap(0); n != 0 {
		t.Errorf("%d writes though nothing has changed", n)
	}
	h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Spec.ManifestWorkTemplate = template("2")
		set.Labels["team"] = "b"
	})
	h.reconcile(t)
	if n := h.writes.Load(); n != 4 {
		t.Errorf("%d writes, want 3 works and the status", n)
	}
	for cluster, list := range h.works(t) {
		if list[0].Labels["team"] != "b" || h.versions(t)[cluster] != "2" {
			t.Errorf("%s has %v and version %s", cluster, list[0].Labels, h.versions(t)[cluster])
		}
	}
}

// A change of a work by another writer is reverted.
func TestWorksAreRepaired(t *testing.T) {
	t.Parallel()
	h := newHub(t, objects(webSet(ref("p")), decidedPlacement("p", "c1"))...)
	h.reconcile(t)
	w := h.works(t)["c1"][0]
	w.Spec = template("3")
	w.Labels = nil
	if err := h.Update(t.Context(), &w); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	h.expectClusters(t, "c1")
	if w = h.works(t)["c1"][0]; h.versions(t)["c1"] != "1" || w.Labels[fleet.LabelManifestWorkReplicaSet] != "ns.web" {
		t.Errorf("version %s with labels %v", h.versions(t)["c1"], w.Labels)
	}
}

// MR-02: works that another hub software made, under a name by chance, are taken over; of two for one, one goes.
func TestWorksOfOthersAreTakenOver(t *testing.T) {
	t.Parallel()
	other := func(name string, age time.Duration) *workv1.ManifestWork {
		return &workv1.ManifestWork{
			ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-age)), Labels: map[string]string{
				fleet.LabelManifestWorkReplicaSet: "ns.web", fleet.LabelPlacementName: "p"}},
			Spec: template("1"),
		}
	}
	h := newHub(t, append(objects(webSet(ref("p")), decidedPlacement("p", "c1")), other("webabcde", time.Hour), other("webfghij", time.Minute))...)
	h.reconcile(t)
	h.expectClusters(t, "c1")
	if name := h.works(t)["c1"][0].Name; name != "webabcde" {
		t.Errorf("%s is left", name)
	}
}

// A work that is none of the set's is not touched.
func TestWorkInTheWay(t *testing.T) {
	t.Parallel()
	set := webSet(ref("p"))
	foreign := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: workName(set, "p", "c1")}, Spec: template("3")}
	h := newHub(t, append(objects(set, decidedPlacement("p", "c1", "c2")), foreign)...)
	_, err := h.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set)})
	if err == nil || h.versions(t)["c1"] != "3" || h.versions(t)["c2"] != "1" {
		t.Errorf("versions %v, error %v", h.versions(t), err)
	}
	if message := h.expectCondition(t, "ManifestworkApplied", metav1.ConditionFalse, "NotAsExpected"); !strings.Contains(message, "c1/"+
		foreign.Name+" is in the way") {
		t.Errorf("message %q", message)
	}
}

// "A set in another namespace with a colliding name hash could take over the works of a victim's set": a work that has lost its labels is
// taken back, one that has those of another set is in the way.
func TestWorkOfAnotherSetIsNotTakenOver(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"of another set": {map[string]string{fleet.LabelManifestWorkReplicaSet: "victim.web", fleet.LabelPlacementName: "p"}, "3"},
		"lost":           {nil, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := webSet(ref("p"))
			there := &workv1.ManifestWork{Spec: template("3"), ObjectMeta: metav1.ObjectMeta{
				Namespace: "c1", Name: workName(set, "p", "c1"), Labels: test.labels,
				Annotations: map[string]string{fleet.AnnotationTemplateWrittenAt: noon.Format(time.RFC3339Nano)},
			}}
			h := newHub(t, append(objects(set, decidedPlacement("p", "c1")), there)...)
			_, err := h.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set)})
			if taken := test.want == "1"; taken != (err == nil) || h.versions(t)["c1"] != test.want {
				t.Errorf("version %s, want %s; error %v", h.versions(t)["c1"], test.want, err)
			}
		})
	}
}

// MR-03: a cluster of several placements has a work for each, and the totals count both.
func TestSeveralPlacements(t *testing.T) {
	t.Parallel()
	h := newHub(t, objects(webSet(ref("p"), ref("q"), ref("q")), decidedPlacement("p", "c1", "c2"), decidedPlacement("q", "c2", "c3"))...)
	h.reconcile(t)
	works := h.works(t)
	if len(works["c1"]) != 1 || len(works["c2"]) != 2 || len(works["c3"]) != 1 {
		t.Fatalf("works: %v", works)
	}
	status := h.set(t).Status
	if status.Summary.Total != 4 || status.Summary.DesiredTotal != 4 || len(status.PlacementsSummary) != 2 {
		t.Errorf("status %+v", status)
	}
	// MR-05: a reference that goes takes its works with it, at once where the works of the others are applied.
	h.report(t, []string{"c2"}, "Applied", "True")
	h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.PlacementRefs = set.Spec.PlacementRefs[:1] })
	h.reconcile(t)
	h.expectClusters(t, "c1", "c2")
}

// MR-04: two at a time, and an agent that says nothing keeps its slot.
func TestRolloutIsProgressive(t *testing.T) {
	t.Parallel()
	h := newHub(t, objects(webSet(progressive(2, clusterv1alpha1.RolloutConfig{})), decidedPlacement("p", "c1", "c2", "c3", "c4"))...)
	h.reconcile(t)
	h.expectClusters(t, "c1", "c2")
	h.report(t, []string{"c1"}, "Applied", "True", "Progressing", "False")
	h.reconcile(t)
	h.expectClusters(t, "c1", "c2", "c3")
	h.reconcile(t)
	h.expectClusters(t, "c1", "c2", "c3")
	if got := h.set(t).Status.PlacementsSummary[0].AvailableDecisionGroups; got != "1 (3 / 4 clusters applied)" {
		t.Errorf("availableDecisionGroups %q", got)
	}
	h.expectCondition(t, "PlacementRolledOut", metav1.ConditionFalse, "Progressing")
	h.report(t, []string{"c1", "c2", "c3"}, "Applied", "True", "Progressing", "False")
	h.reconcile(t)
	h.report(t, []string{"c4"}, "Applied", "True", "Progressing", "False")
	h.reconcile(t)
	h.expectCondition(t, "PlacementRolledOut", metav1.ConditionTrue, "Complete")

	// A change goes the same way; what is reported of the template before does not count.
	h.setTemplate(t, "2")
	h.reconcile(t)
	h.reconcile(t)
	if want := map[string]string{"c1": "2", "c2": "2", "c3": "1", "c4": "1"}; !maps.Equal(h.versions(t), want) {
		t.Errorf("versions %v, want %v", h.versions(t), want)
	}
	if sum := h.set(t).Status.Summary; sum.Updated != 2 || sum.Applied != 2 || sum.Total != 4 {
		t.Errorf("summary %+v", sum)
	}
	// A rollout that is stopped by a failure starts no more.
	h.report(t, []string{"c1"}, "Applied", "True", "Progressing", "True", "Degraded", "True")
	h.report(t, []string{"c2"}, "Applied", "True", "Progressing", "False")
	h.reconcile(t)
	if h.versions(t)["c3"] != "1" {
		t.Error("the rollout goes on after a failure")
	}
	if message := h.expectCondition(t, "PlacementRolledOut", metav1.ConditionFalse, "Progressing"); !strings.Contains(message,
		"placement p: stopped: 1 failure") {
		t.Errorf("message %q", message)
	}
}

// MR-04, WK-16: a change gets past works that agents leave alone because they were complete before it. The set says so, until they are
// made anew, and the change does not count as good for rollback before.
func TestRolloutOverCompleteWorks(t *testing.T) {
	t.Parallel()
	clusters := []string{"c1", "c2", "c3"}
	set := webSet(progressive(1, clusterv1alpha1.RolloutConfig{ProgressDeadline: "5m"}))
	set.Annotations = map[string]string{fleet.AnnotationRollback: "true"}
	h := newHub(t, objects(set, decidedPlacement("p", clusters...))...)
	expectState := func(number int, state revisionState) {
		t.Helper()
		if now := h.history(t).current(); now.Number != number || now.State != state {
			t.Errorf("revision %d is %q, want revision %d to be %q", now.Number, now.State, number, state)
		}
	}
	for range clusters {
		h.reconcile(t)
		h.report(t, clusters, "Applied", "True", "Progressing", "False", "Complete", "True")
	}
	h.reconcile(t)
	h.expectCondition(t, "PlacementRolledOut", metav1.ConditionTrue, "Complete")
	expectState(1, good)
	h.setTemplate(t, "2")
	for range clusters {
		h.reconcile(t)
	}
	h.clock.Step(time.Hour)
	h.reconcile(t)
	if want := map[string]string{"c1": "2", "c2": "2", "c3": "2"}; !maps.Equal(h.versions(t), want) {
		t.Errorf("versions %v, want %v", h.versions(t), want)
	}
	message := h.expectCondition(t, "PlacementRolledOut", metav1.ConditionFalse, "Progressing")
	if !strings.Contains(message, "3 skipped") || !strings.Contains(message, "the works of c1, c2, c3 alone, because they were complete") {
		t.Errorf("message %q", message)
	}
	h.decide(t, decision("p", 1, 0, append(clusters, "c4")...))
	h.reconcile(t)
	h.report(t, []string{"c4"}, "Applied", "True", "Progressing", "False")
	h.reconcile(t)
	expectState(2, "")
	for _, cluster := range clusters {
		if err := h.Delete(t.Context(), &h.works(t)[cluster][0]); err != nil {
			t.Fatal(err)
		}
	}
	for range clusters {
		h.reconcile(t)
		h.report(t, clusters, "Applied", "True", "Progressing", "False", "Complete", "True")
	}
	h.reconcile(t)
	h.expectCondition(t, "PlacementRolledOut", metav1.ConditionTrue, "Complete")
	expectState(2, good)
}

// MR-06: PlacementRolledOut is True when every selected cluster has succeeded, and not before, whatever the strategy tolerates.
func TestRolledOutIsSuccess(t *testing.T) {
	t.Parallel()
	half, all := intstr.FromString("50%"), intstr.FromString("100%")
	const applied, well, sick = "Applied=True", "Progressing=False", "Progressing=True Degraded=True"
	for name, test := range map[string]struct {
		strategy clusterv1alpha1.RolloutStrategy
		// reports are what c1 and c2 say.
		reports   [2]string
		after     time.Duration
		overrides string
		status    metav1.ConditionStatus
		text      string
	}{
		"all well": {strategy: clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.All}, reports: [2]string{well, well},
			status: metav1.ConditionTrue, text: "complete: 2 of 2 clusters successful"},
		"one under way": {strategy: clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.All}, reports: [2]string{"Progressing=True", well},
			status: metav1.ConditionFalse, text: "1 in progress"},
		"one not heard of": {strategy: clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.All}, reports: [2]string{"", well},
			status: metav1.ConditionFalse, text: "1 in progress"},
		"All, one failed": {strategy: clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.All}, reports: [2]string{sick, well},
			status: metav1.ConditionFalse,
			text:   "no more clusters begin: 1 of 2 clusters successful, 1 failed; repair the failed clusters (c1), or roll out another change"},
		"Progressive, as many failed as tolerated": {strategy: progressive(2,
			clusterv1alpha1.RolloutConfig{MaxFailures: &half}).RolloutStrategy,
			reports: [2]string{sick, well}, status: metav1.ConditionFalse, text: "1 of 2 clusters successful, 1 failed"},
		"Progressive, all failed": {strategy: progressive(2, clusterv1alpha1.RolloutConfig{MaxFailures: &all}).RolloutStrategy,
			reports: [2]string{sick, sick}, status: metav1.ConditionFalse, text: "0 of 2 clusters successful, 2 failed"},
		"Progressive, more failed than tolerated": {strategy: progressive(2, clusterv1alpha1.RolloutConfig{}).RolloutStrategy,
			reports: [2]string{sick, well}, status: metav1.ConditionFalse, text: "stopped: 1 failure"},
		"per group, one failed": {strategy: clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.ProgressivePerGroup,
			ProgressivePerGroup: &clusterv1alpha1.RolloutProgressivePerGroup{RolloutConfig: clusterv1alpha1.RolloutConfig{MaxFailures: &half}}},
			reports: [2]string{sick, well}, status: metav1.ConditionFalse, text: "1 of 2 clusters successful, 1 failed"},
		"All, one timed out": {strategy: clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.All,
			All: &clusterv1alpha1.RolloutAll{RolloutConfig: clusterv1alpha1.RolloutConfig{ProgressDeadline: "5m"}}},
			reports: [2]string{"", well}, after: 5 * time.Minute, status: metav1.ConditionFalse,
			text: "1 of 2 clusters successful, 1 timed out; repair the failed clusters (c1)"},
		"soaking": {strategy: progressive(2, clusterv1alpha1.RolloutConfig{MinSuccessTime: "1h"}).RolloutStrategy,
			reports: [2]string{well, well}, status: metav1.ConditionFalse, text: "2 soaking"},
		"passed over": {strategy: clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.All},
			overrides: "[{set: [{path: x}]}]", status: metav1.ConditionFalse, text: "no more clusters begin: 0 of 2 clusters successful, 2 skipped"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := webSet(workv1alpha1.LocalPlacementReference{Name: "p", RolloutStrategy: test.strategy})
			set.Annotations = map[string]string{fleet.AnnotationOverrides: test.overrides}
			h := newHub(t, objects(set, decidedPlacement("p", "c1", "c2"))...)
			_, _ = h.Reconcile(t.Context(), request)
			h.clock.Step(test.after)
			for i, reports := range test.reports {
				if reports == "" {
					continue
				}
				for condition := range strings.SplitSeq(applied+" "+reports, " ") {
					kind, status, _ := strings.Cut(condition, "=")
					h.report(t, []string{fmt.Sprintf("c%d", i+1)}, kind, status)
				}
			}
			_, _ = h.Reconcile(t.Context(), request)
			reason := map[metav1.ConditionStatus]string{metav1.ConditionTrue: "Complete", metav1.ConditionFalse: "Progressing"}[test.status]
			if message := h.expectCondition(t, "PlacementRolledOut", test.status, reason); !strings.Contains(message, test.text) {
				t.Errorf("message %q, want %q", message, test.text)
			}
		})
	}
}

// MR-04 MR-08: the controller comes back when a deadline ends, counted from when the hub wrote the work, and after half an
// hour otherwise.
func TestDeadlineOfSilentAgents(t *testing.T) {
	t.Parallel()
	one := intstr.FromInt(1)
	h := newHub(t, objects(webSet(progressive(1, clusterv1alpha1.RolloutConfig{ProgressDeadline: "10m", MaxFailures: &one})),
		decidedPlacement("p", "c1", "c2"))...)
	if wait := h.reconcile(t).RequeueAfter; wait != 10*time.Minute {
		t.Errorf("comes back after %s", wait)
	}
	h.expectClusters(t, "c1")
	h.clock.Step(10*time.Minute - time.Second)
	if wait := h.reconcile(t).RequeueAfter; wait != time.Second {
		t.Errorf("comes back after %s", wait)
	}
	h.clock.Step(time.Second)
	h.reconcile(t)
	h.expectClusters(t, "c1", "c2")
	h.report(t, []string{"c1", "c2"}, "Applied", "True", "Progressing", "False")
	if wait := h.reconcile(t).RequeueAfter; wait != 30*time.Minute {
		t.Errorf("comes back after %s", wait)
	}
}

// Gap W22: what is made of a number that does not fit is said where people look.
func TestClampedNumbersAreNoted(t *testing.T) {
	t.Parallel()
	h := newHub(t, objects(webSet(progressive(9, clusterv1alpha1.RolloutConfig{})), decidedPlacement("p", "c1", "c2"))...)
	h.reconcile(t)
	message := h.expectCondition(t, "PlacementRolledOut", metav1.ConditionFalse, "Progressing")
	if !strings.Contains(message, "note: rolloutStrategy.progressive.maxConcurrency: 9 is more than") {
		t.Errorf("message %q", message)
	}
}

// MR-05: the work of a cluster that is selected no more goes, but not while it moves between decisions.
func TestDeselectedClusters(t *testing.T) {
	t.Parallel()
	h := newHub(t, append(objects(webSet(ref("p")), decidedPlacement("p", "c1", "c2")), decision("p", 2, 1))...)
	h.reconcile(t)
	uid := h.works(t)["c2"][0].UID
	h.decide(t, decision("p", 1, 0, "c1"))
	if wait := h.reconcile(t).RequeueAfter; wait != debounce.Delay {
		t.Errorf("comes back after %s", wait)
	}
	h.expectClusters(t, "c1", "c2")
	h.decide(t, decision("p", 2, 1, "c2"))
	h.clock.Step(debounce.Delay)
	h.reconcile(t)
	if h.expectClusters(t, "c1", "c2"); h.works(t)["c2"][0].UID != uid {
		t.Error("the work was made again")
	}
	// It is gone for good this time. That it was away before does not count.
	h.decide(t, decision("p", 2, 1))
	h.reconcile(t)
	h.expectClusters(t, "c1", "c2")
	h.clock.Step(debounce.Delay)
	h.failToRead(t) // does not start the wait again
	h.reconcile(t)
	h.expectClusters(t, "c1")
	if sum := h.set(t).Status.Summary; sum.Total != 1 || sum.DesiredTotal != 1 {
		t.Errorf("summary %+v", sum)
	}
}

// MR-05 MR-06: where it is not known what is selected, nothing is deleted.
func TestUnknownDecisions(t *testing.T) {
	t.Parallel()
	h := newHub(t, objects(webSet(ref("p")), decidedPlacement("p", "c1"))...)
	h.reconcile(t)
	h.expectCondition(t, "PlacementVerified", metav1.ConditionTrue, "AsExpected")
	const stays = "until then its works stay as they are, as do those of placements that have left the set or select no cluster"
	expectUndecided := func(when string) {
		t.Helper()
		h.clock.Step(time.Hour)
		h.reconcile(t)
		h.clock.Step(time.Hour)
		h.reconcile(t)
		h.expectClusters(t, "c1")
		if message := h.expectCondition(t, "PlacementVerified", metav1.ConditionFalse, "PlacementDecisionEmpty"); !strings.Contains(message,
			"Placement p has not been decided on yet; "+stays) {
			t.Errorf("%s: message %q", when, message)
		}
	}
	if err := h.Delete(t.Context(), decision("p", 1, 0)); err != nil {
		t.Fatal(err)
	}
	expectUndecided("no decision")
	unwritten := decision("p", 1, 0)
	unwritten.Status = clusterv1beta1.PlacementDecisionStatus{}
	h.create(t, unwritten)
	expectUndecided("without status")
	if err := h.Delete(t.Context(), &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	h.expectClusters(t, "c1")
	if message := h.expectCondition(t, "PlacementVerified", metav1.ConditionFalse, "PlacementDecisionNotFound"); !strings.Contains(message,
		"Placement p does not exist in namespace ns: create it, or correct spec.placementRefs; "+stays) {
		t.Errorf("message %q", message)
	}
	h.expectCondition(t, "PlacementRolledOut", metav1.ConditionFalse, "Progressing")
}

// MR-06: a decision for nobody is one.
func TestEmptyDecision(t *testing.T) {
	t.Parallel()
	h := newHub(t, objects(webSet(ref("p")), decidedPlacement("p"))...)
	h.reconcile(t)
	h.expectCondition(t, "PlacementVerified", metav1.ConditionFalse, "PlacementDecisionEmpty")
	h.expectCondition(t, "ManifestworkApplied", metav1.ConditionFalse, "PlacementDecisionEmpty")
}

// MR-06, gap W13: all the totals, and how ManifestworkApplied follows.
func TestStatus(t *testing.T) {
	t.Parallel()
	h := newHub(t, append(objects(webSet(ref("p")), decidedPlacement("p", "c1", "c2")), decision("p", 2, 1, "c3"))...)
	h.reconcile(t)
	h.expectCondition(t, "ManifestworkApplied", metav1.ConditionFalse, "Processing")
	h.report(t, []string{"c1", "c2"}, "Applied", "True", "Available", "True")
	h.report(t, []string{"c1"}, "Progressing", "False")
	h.report(t, []string{"c2"}, "Progressing", "True", "Degraded", "True")
	h.report(t, []string{"c3"}, "Applied", "False")
	h.reconcile(t)
	want := workv1alpha1.ManifestWorkReplicaSetSummary{Total: 3, DesiredTotal: 3, Applied: 2, Available: 2, Progressing: 1, Degraded: 1,
		Updated: 3}
	status := h.set(t).Status
	if status.Summary != want || status.PlacementsSummary[0].Summary != want ||
		status.PlacementsSummary[0].AvailableDecisionGroups != "2 (3 / 3 clusters applied)" {
		t.Errorf("status %+v, want %+v", status, want)
	}
	if message := h.expectCondition(t, "ManifestworkApplied", metav1.ConditionFalse, "NotAsExpected"); !strings.Contains(message, "c3/web-") {
		t.Errorf("message %q", message)
	}
	h.report(t, []string{"c3"}, "Applied", "True")
	h.reconcile(t)
	h.expectCondition(t, "ManifestworkApplied", metav1.ConditionTrue, "AsExpected")
}

// MR-06: the reasons of all conditions, in their order, with the generation and the time of the change.
func TestConditions(t *testing.T) {
	t.Parallel()
	undecided := decidedPlacement("p")[:1]
	for name, test := range map[string]struct {
		objects []client.Object
		refs    []string
		refuse  string
		reports map[string]string // What the agents say of Applied, by cluster.
		want    string
	}{
		"no placement": {refs: []string{"p"},
			want: "False PlacementDecisionNotFound, False Progressing, False PlacementDecisionEmpty"},
		"not decided": {objects: undecided, refs: []string{"p"},
			want: "False PlacementDecisionEmpty, False Progressing, False PlacementDecisionEmpty"},
		"nothing selected": {objects: decidedPlacement("p"), refs: []string{"p"},
			want: "False PlacementDecisionEmpty, True Complete, False PlacementDecisionEmpty"},
		"one missing, one there": {objects: decidedPlacement("p", "c1"), refs: []string{"p", "q"},
			want: "False PlacementDecisionNotFound, False Progressing, False Processing"},
		"one not decided, one missing": {objects: undecided, refs: []string{"p", "q"},
			want: "False PlacementDecisionNotFound, False Progressing, False PlacementDecisionEmpty"},
		"one empty, one there": {objects: slices.Concat(decidedPlacement("p", "c1"), decidedPlacement("q")), refs: []string{"p", "q"},
			reports: map[string]string{"c1": "True"},
			want:    "True AsExpected, False Progressing, True AsExpected"},
		"nobody has reported": {objects: decidedPlacement("p", "c1", "c2"), refs: []string{"p"}, reports: map[string]string{"c1": "True"},
			want: "True AsExpected, False Progressing, False Processing"},
		"one is refused": {objects: decidedPlacement("p", "c1", "c2"), refs: []string{"p"}, reports: map[string]string{"c1": "True", "c2": "False"},
			want: "True AsExpected, False Progressing, False NotAsExpected"},
		"one cannot be written": {objects: decidedPlacement("p", "c1", "c2"), refs: []string{"p"}, refuse: "c2", reports: map[string]string{"c1": "True"},
			want: "True AsExpected, False Progressing, False NotAsExpected"},
		"all applied": {objects: decidedPlacement("p", "c1", "c2"), refs: []string{"p"}, reports: map[string]string{"c1": "True", "c2": "True"},
			want: "True AsExpected, False Progressing, True AsExpected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := webSet()
			for _, placement := range test.refs {
				set.Spec.PlacementRefs = append(set.Spec.PlacementRefs, ref(placement))
			}
			h := newHub(t, append([]client.Object{set}, test.objects...)...)
			h.refuse[test.refuse] = true
			_, _ = h.Reconcile(t.Context(), request)
			for cluster, status := range test.reports {
				h.report(t, []string{cluster}, "Applied", status)
			}
			h.clock.Step(time.Minute)
			_, _ = h.Reconcile(t.Context(), request)
			conditions := h.set(t).Status.Conditions
			var got []string
			for _, c := range conditions {
				got = append(got, string(c.Status)+" "+c.Reason)
				if c.ObservedGeneration != 1 || c.Message == "" || c.LastTransitionTime.Before(new(metav1.NewTime(noon))) {
					t.Errorf("%+v", c)
				}
			}
			if strings.Join(got, ", ") != test.want || conditions[0].Type != "PlacementVerified" || conditions[1].Type != "PlacementRolledOut" ||
				conditions[2].Type != "ManifestworkApplied" {
				t.Errorf("%q, want %q", got, test.want)
			}
			before := h.writes.Load()
			h.clock.Step(time.Minute)
			_, _ = h.Reconcile(t.Context(), request)
			if after := h.set(t).Status.Conditions; test.refuse == "" && (h.writes.Load() != before || !slices.Equal(after, conditions)) {
				t.Errorf("%d writes when nothing has changed: %+v", h.writes.Load()-before, after)
			}
		})
	}
}

// MR-06: conditions of a set with many placements are not longer than the API takes.
func TestConditionsOfManyPlacements(t *testing.T) {
	t.Parallel()
	set := webSet()
	for i := range 400 {
		set.Spec.PlacementRefs = append(set.Spec.PlacementRefs, ref(fmt.Sprint("placement-", i)))
	}
	h := newHub(t, set)
	h.reconcile(t)
	for _, c := range h.set(t).Status.Conditions {
		if len(c.Message) > 32768 {
			t.Errorf("%s has a message of %d bytes", c.Type, len(c.Message))
		}
	}
}

// One cluster that cannot be written to does not hold up the others.
func TestRefusedWrites(t *testing.T) {
	t.Parallel()
	set := webSet(ref("p"))
	h := newHub(t, objects(set, decidedPlacement("p", "c1", "c2", "c3"))...)
	h.refuse["c2"] = true
	if _, err := h.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set)}); err == nil {
		t.Error("the controller does not try again")
	}
	h.expectClusters(t, "c1", "c3")
	if message := h.expectCondition(t, "ManifestworkApplied", metav1.ConditionFalse, "NotAsExpected"); !strings.Contains(message,
		"c2 does not want it") {
		t.Errorf("message %q", message)
	}
	delete(h.refuse, "c2")
	h.reconcile(t)
	h.expectClusters(t, "c1", "c2", "c3")
}

// MR-07
func TestDeletion(t *testing.T) {
	t.Parallel()
	for _, policy := range []workv1alpha1.CascadeDeletionPolicy{"", workv1alpha1.Background, workv1alpha1.Foreground} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			set := webSet(ref("p"))
			set.Spec.CascadeDeletionPolicy = policy
			h := newHub(t, objects(set, decidedPlacement("p", "c1", "c2"))...)
			h.reconcile(t)
			for _, list := range h.works(t) {
				list[0].Finalizers = []string{fleet.FinalizerManifestWorkCleanup}
				if err := h.Update(t.Context(), &list[0]); err != nil {
					t.Fatal(err)
				}
			}
			if err := h.Delete(t.Context(), h.set(t)); err != nil {
				t.Fatal(err)
			}
			if policy != workv1alpha1.Foreground {
				h.reconcile(t)
			} else {
				for range 2 {
					h.reconcile(t)
					if sum := h.set(t).Status.Summary; sum.Total != 2 {
						t.Errorf("summary %+v", sum)
					}
				}
				waits := fmt.Sprintf("waits for 2 works to go: c1/%s, c2/%s", workName(set, "p", "c1"), workName(set, "p", "c2"))
				if c := meta.FindStatusCondition(h.set(t).Status.Conditions, fleet.ConditionManifestworkApplied); c == nil ||
					!strings.Contains(c.Message, waits) {
					t.Errorf("it says %+v, want %q", c, waits)
				}
				for _, list := range h.works(t) {
					list[0].Finalizers = nil
					if err := h.Update(t.Context(), &list[0]); err != nil {
						t.Fatal(err)
					}
				}
				h.reconcile(t)
			}
			for cluster, list := range h.works(t) {
				if list[0].DeletionTimestamp.IsZero() {
					t.Errorf("the work of %s stays", cluster)
				}
			}
			if err := h.Get(t.Context(), client.ObjectKeyFromObject(set), set); !apierrors.IsNotFound(err) {
				t.Errorf("the set is still there: %v", err)
			}
		})
	}
}

// MR-07, SC-23: with the gate switched off, sets that are deleted go, with their works, as they do with it. All others stay as they are.
func TestDeletionWithoutGate(t *testing.T) {
	t.Parallel()
	for _, policy := range []workv1alpha1.CascadeDeletionPolicy{workv1alpha1.Background, workv1alpha1.Foreground} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			set := webSet(ref("p"))
			set.Spec.CascadeDeletionPolicy = policy
			h := newHub(t, objects(set, decidedPlacement("p", "c1", "c2"))...)
			h.reconcile(t)
			h.Controller = New(h.WithWatch, h.WithWatch, events.NewFakeRecorder(100), Options{Disabled: true, TrustDecisions: true, Clock: h.clock})
			h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.PlacementRefs = nil })
			h.reconcile(t)
			h.expectClusters(t, "c1", "c2")
			if err := h.Delete(t.Context(), h.set(t)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				h.reconcile(t)
			}
			h.expectClusters(t)
			if err := h.Get(t.Context(), client.ObjectKeyFromObject(set), set); !apierrors.IsNotFound(err) {
				t.Errorf("the set is still there: %v", err)
			}
		})
	}
}

// "An agent labels its work as one of the tenant's set, with a finalizer: the set then stays." It waits for works with names of its own
// alone.
func TestDeletionWaitsForItsOwn(t *testing.T) {
	t.Parallel()
	set := webSet(ref("p"))
	set.Spec.CascadeDeletionPolicy = workv1alpha1.Foreground
	for name, waits := range map[string]bool{
		workName(set, "p", "c1"): true, workName(set, "earlier", "c1"): true, "webabcde": true,
		"mine": false, "web": false, "web-of-me": false, workName(set, "p", "c2"): false, "web-0123456789": false,
	} {
		h := newHub(t, objects(set.DeepCopy(), decidedPlacement("p"), []client.Object{&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
			Namespace: "c1", Name: name, Finalizers: []string{"example.com/stay"},
			Labels: map[string]string{fleet.LabelManifestWorkReplicaSet: "ns.web", fleet.LabelPlacementName: "earlier"},
		}}})...)
		h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) {
			set.Finalizers = []string{fleet.FinalizerManifestWorkReplicaSetCleanup}
		})
		if err := h.Delete(t.Context(), h.set(t)); err != nil {
			t.Fatal(err)
		}
		h.reconcile(t)
		err := h.Get(t.Context(), client.ObjectKeyFromObject(set), &workv1alpha1.ManifestWorkReplicaSet{})
		if client.IgnoreNotFound(err) != nil || (err == nil) != waits {
			t.Errorf("with the work %s: %v, want the set to wait: %t", name, err, waits)
		}
		if h.works(t)["c1"][0].DeletionTimestamp.IsZero() {
			t.Errorf("the work %s is not deleted", name)
		}
	}
}

// A cluster whose work is being deleted gets a new one when it is gone.
func TestWorkThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	h := newHub(t, objects(webSet(ref("p")), decidedPlacement("p", "c1"))...)
	h.reconcile(t)
	w := h.works(t)["c1"][0]
	w.Finalizers = []string{fleet.FinalizerManifestWorkCleanup}
	if err := h.Update(t.Context(), &w); err != nil {
		t.Fatal(err)
	}
	if err := h.Delete(t.Context(), &w); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	if h.expectClusters(t, "c1"); h.set(t).Status.Summary.Total != 0 {
		t.Errorf("summary %+v", h.set(t).Status.Summary)
	}
	w = h.works(t)["c1"][0]
	w.Finalizers = nil
	if err := h.Update(t.Context(), &w); err != nil {
		t.Fatal(err)
	}
	h.expectClusters(t)
	h.reconcile(t)
	h.expectClusters(t, "c1")
}
