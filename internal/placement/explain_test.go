package placement

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement/report"
)

// Why returns the reason for one cluster.
func (e *Explanation) Why(cluster string) ClusterReason {
	for _, reason := range e.Clusters {
		if reason.ClusterName == cluster {
			return reason
		}
	}
	return ClusterReason{ClusterName: cluster, Reason: "there is no such ManagedCluster"}
}

// P10: the first reason why not.
func TestReasonsNotSelected(t *testing.T) {
	t.Parallel()
	deleted := newMember("deleted")
	deleted.DeletionTimestamp = &metav1.Time{Time: start}
	denied := newMember("denied", "region=eu")
	denied.Status.Conditions = []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionFalse,
		Reason: "HubClusterAdminDenied"}}
	s := newFleet(deleted, denied,
		newMember("best", "region=eu", "cpu=3"),
		newMember("good", "region=eu", "cpu=2"),
		newMember("bad", "region=eu", "cpu=1"),
		newMember("slow", "region=eu", "cpu=2", "taint:slow:PreferNoSelect"),
		newMember("us", "region=us"),
		newMember("down", "region=eu", "taint:down=very:NoSelect"),
		newMember("full", "region=eu", "taint:full:NoSelectIfNew"),
		newMember("other", fleet.LabelClusterSet+"=other"))
	p := newPlacement(withLimit(2), withExactWeights(map[string]int32{"ResourceAllocatableCPU": 1}),
		withPredicates(byLabels(map[string]string{"region": "eu"}), byCEL("false")))
	explanation := s.Explain(t.Context(), p)
	for cluster, want := range map[string]string{
		"best":    "score 100 = ResourceAllocatableCPU 100",
		"deleted": "it is being deleted",
		"denied":  "it is denied: spec.hubAcceptsClient of the ManagedCluster is false",
		"other":   `it is in none of the bound ManagedClusterSets ["default"]`,
		"us":      `spec.predicates[0]: its labels do not match; spec.predicates[1]: the CEL expression "false" is false`,
		"down":    "it has the taint down=very:NoSelect, which is not or no longer tolerated",
		"full":    "it has the taint full:NoSelectIfNew, which is not tolerated, and it is not selected already",
		"bad":     "it ranks 3 of 4 with score -100 = ResourceAllocatableCPU -100; the last one selected is good with score 0 = ResourceAllocatableCPU 0",
		"slow":    "it ranks 4 of 4 with score 0 = ResourceAllocatableCPU 0 and the taint slow:PreferNoSelect; the last one selected is good with score 0 = ResourceAllocatableCPU 0",
		"unknown": "there is no such ManagedCluster",
	} {
		got := explanation.Why(cluster)
		if got.Reason != want || got.Selected != (cluster == "best") {
			t.Errorf("%s: %+v, want %q", cluster, got, want)
		}
	}
	if want := (Funnel{Fleet: 10, InClusterSets: 7, Matched: 6, Tolerated: 4, Selected: 2}); explanation.Result.Funnel != want {
		t.Errorf("the funnel is %+v, want %+v", explanation.Result.Funnel, want)
	}
	for reason, q := range map[string]*clusterv1beta1.Placement{
		"spec.numberOfClusters is 0": newPlacement(withLimit(0)),
		"spec.spreadPolicy.spreadConstraints[0]: enough clusters with label region=eu": newPlacement(withLimit(4),
			withSpread(spreadOver("Label", "region", 1, "DoNotSchedule"))),
		"it has no label zone, which spec.spreadPolicy.spreadConstraints[0] wants": newPlacement(withSpread(spreadOver("Label", "zone", 1,
			"DoNotSchedule"))),
		"clusters that spread better over spec.spreadPolicy go first": newPlacement(withLimit(2),
			withExactWeights(map[string]int32{"ResourceAllocatableCPU": 1}),
			withSpread(spreadOver("Label", "region", 1, "ScheduleAnyway"))),
	} {
		if got := s.Explain(t.Context(), q).Why("good"); !strings.Contains(got.Reason, reason) {
			t.Errorf("%+v, want %q", got, reason)
		}
	}
	elsewhere := newPlacement()
	elsewhere.Namespace = "elsewhere"
	got := s.Explain(t.Context(), elsewhere).Why("best")
	if !strings.Contains(got.Reason, "No ManagedClusterSetBinding in namespace elsewhere") {
		t.Errorf("%+v", got)
	}
}

// PL-23
func TestExplain(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a", "cpu=1"), newMember("b", "cpu=2"), newMember("c", "cpu=2", "taint:down:NoSelect"),
		newMember("d", "region=us"))
	schedule(t, s, newPlacement(withLimit(1)))
	notUS := clusterv1beta1.ClusterSelector{LabelSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "region", Operator: metav1.LabelSelectorOpDoesNotExist}}}}
	unsaved := newPlacement(withLimit(1), withPredicates(notUS), withWeights(map[string]int32{"ResourceAllocatableCPU": 3}))
	explanation := s.Explain(t.Context(), unsaved)
	wantClusters(t, explanation.Result, "b")
	want := []Filter{
		{Name: "ClusterSets", Clusters: []string{"a", "b", "c", "d"}},
		{Name: "Predicate", Clusters: []string{"a", "b", "c"}},
		{Name: "TaintToleration", Clusters: []string{"a", "b"}},
	}
	if diff := cmp.Diff(want, explanation.Filters); diff != "" {
		t.Error(diff)
	}
	scores := []report.PrioritizerResult{
		{Name: "Balance", Weight: 1, Scores: map[string]int64{"a": 100, "b": 100}},
		{Name: "Steady", Weight: 1, Scores: map[string]int64{"a": 100, "b": 0}}, // of the saved one
		{Name: "ResourceAllocatableCPU", Weight: 3, Scores: map[string]int64{"a": -100, "b": 100}},
	}
	if diff := cmp.Diff(scores, explanation.Prioritizers); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]ClusterScore{{ClusterName: "b", Score: 400}, {ClusterName: "a", Score: -100}}, explanation.Scores); diff != "" {
		t.Error(diff)
	}
	// An explanation records no decision.
	if result, _ := s.Schedule(keyOf(unsaved)); clusters(result)[0] != "a" {
		t.Errorf("the saved placement now selects %v", clusters(result))
	}
}

// PL-26, P10: the explanation of a misconfigured placement has the clusters that it keeps.
func TestExplainMisconfigured(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"), newMember("b"), newMember("other", fleet.LabelClusterSet+"=other"))
	schedule(t, s, newPlacement(withLimit(1)))
	broken := s.Explain(t.Context(), newPlacement(withPredicates(byCEL("broken"))))
	if broken.Result.Misconfigured == nil || broken.Result.Selected != 1 {
		t.Errorf("%+v", broken.Result)
	}
	want := []ClusterReason{
		{ClusterName: "a", Selected: true, Reason: "it was selected before the placement was misconfigured, and stays"},
		{ClusterName: "b", Reason: "it was not selected before the placement was misconfigured"},
		{ClusterName: "other", Reason: "it was not selected before the placement was misconfigured"},
	}
	if diff := cmp.Diff(want, broken.Clusters); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Filter{{Name: "ClusterSets", Clusters: []string{"a", "b"}}}, broken.Filters); diff != "" {
		t.Error(diff)
	}
	elsewhere := newPlacement(withPredicates(byCEL("broken")), func(p *clusterv1beta1.Placement) { p.Spec.ClusterSets = []string{"other"} })
	lost := ClusterReason{ClusterName: "a",
		Reason: "it was selected before the placement was misconfigured, and is in none of its ManagedClusterSets now"}
	if got := s.Explain(t.Context(), elsewhere).Why("a"); got != lost {
		t.Errorf("%+v, want %+v", got, lost)
	}
}
