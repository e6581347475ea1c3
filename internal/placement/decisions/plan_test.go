package decisions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// fakeHub holds the PlacementDecisions of one placement.
type fakeHub struct {
	owner     *clusterv1beta1.Placement
	objects   []*clusterv1beta1.PlacementDecision
	taken     []string
	now       time.Time
	rateLimit time.Duration
}

func newHub() *fakeHub {
	h := &fakeHub{owner: &clusterv1beta1.Placement{}, now: start, rateLimit: time.Minute}
	h.owner.Namespace, h.owner.Name, h.owner.UID = "ns", "p", "uid"
	return h
}

// plan plans the writes for groups, and applies them.
func (h *fakeHub) plan(groups ...placement.Group) *Plan {
	plan := New(h.owner, &placement.Result{Groups: groups, ScoreRateLimit: h.rateLimit}, h.objects, h.taken, h.now)
	h.apply(plan)
	return plan
}

// apply applies a plan.
func (h *fakeHub) apply(plan *Plan) {
	for _, write := range plan.Writes {
		h.objects = slices.DeleteFunc(h.objects, func(o *clusterv1beta1.PlacementDecision) bool { return o.Name == write.Decision.Name })
		h.objects = append(h.objects, write.Decision)
	}
	h.objects = slices.DeleteFunc(h.objects, func(o *clusterv1beta1.PlacementDecision) bool { return slices.Contains(plan.Deletes, o.Name) })
	if slices.ContainsFunc(plan.Writes, func(w Write) bool { return w.Status }) {
		h.owner.Status.LastScoreUpdateTime = &metav1.Time{Time: h.now}
	}
}

// content is the clusters of each object, by the number in its name.
func (h *fakeHub) content() map[string][]string {
	content := map[string][]string{}
	for _, object := range h.objects {
		content[object.Name] = names(object.Status.Decisions)
	}
	return content
}

func names(decisions []clusterv1beta1.ClusterDecision) []string {
	all := []string{}
	for _, decision := range decisions {
		all = append(all, decision.ClusterName)
	}
	return all
}

func group(name string, clusters ...string) placement.Group {
	g := placement.Group{Name: name}
	for _, cluster := range clusters {
		g.Decisions = append(g.Decisions, clusterv1beta1.ClusterDecision{ClusterName: cluster, Reason: "because", Score: 1})
	}
	return g
}

func numbered(from, to int) []string {
	var all []string
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprintf("c%04d", i))
	}
	return all
}

// PL-16
func TestObjects(t *testing.T) {
	t.Parallel()
	h := newHub()
	plan := h.plan(group("canary", "c1"), group("", "c2", "c3"))
	if diff := cmp.Diff(map[string][]string{"p-decision-1": {"c1"}, "p-decision-2": {"c2", "c3"}}, h.content()); diff != "" {
		t.Fatal(diff)
	}
	second := h.objects[1]
	want := map[string]string{fleet.LabelPlacement: "p", fleet.LabelDecisionGroupName: "", fleet.LabelDecisionGroupIndex: "1"}
	if diff := cmp.Diff(want, second.Labels); diff != "" {
		t.Error(diff)
	}
	if !metav1.IsControlledBy(second, h.owner) || second.Namespace != "ns" || second.OwnerReferences[0].Kind != "Placement" ||
		second.OwnerReferences[0].APIVersion != "cluster.open-cluster-management.io/v1beta1" {
		t.Errorf("owned by %v in %q", second.OwnerReferences, second.Namespace)
	}
	// PL-17
	if diff := cmp.Diff([]clusterv1beta1.DecisionGroupStatus{
		{DecisionGroupIndex: 0, DecisionGroupName: "canary", Decisions: []string{"p-decision-1"}, ClustersCount: 1},
		{DecisionGroupIndex: 1, DecisionGroupName: "", Decisions: []string{"p-decision-2"}, ClustersCount: 2},
	}, plan.Groups); diff != "" {
		t.Error(diff)
	}
}

// PL-16: there is always one object.
func TestEmpty(t *testing.T) {
	t.Parallel()
	h := newHub()
	plan := h.plan(placement.Group{})
	if len(plan.Writes) != 1 || !plan.Writes[0].Create {
		t.Fatalf("%+v", plan)
	}
	h.plan(group("", numbered(1, 250)...))
	h.plan(placement.Group{})
	if diff := cmp.Diff(map[string][]string{"p-decision-1": {}}, h.content()); diff != "" {
		t.Error(diff)
	}
	if plan := h.plan(placement.Group{}); len(plan.Writes)+len(plan.Deletes) > 0 {
		t.Errorf("nothing changed, and yet: %+v", plan)
	}
}

// P5 PL-16
func TestFewWrites(t *testing.T) {
	t.Parallel()
	all := numbered(1, 1000)
	for name, test := range map[string]struct {
		then            []string
		writes, deletes int
	}{
		"nothing":                      {then: all},
		"one goes":                     {then: slices.Delete(slices.Clone(all), 500, 501), writes: 1},
		"one goes and another comes":   {then: append(slices.Delete(slices.Clone(all), 500, 501), "c"), writes: 1},
		"one comes":                    {then: append(slices.Clone(all), "a-first-one"), writes: 1},
		"a whole slice goes":           {then: slices.Delete(slices.Clone(all), 900, 1000), deletes: 1},
		"a slice in between goes":      {then: slices.Delete(slices.Clone(all), 200, 300), writes: 1, deletes: 1},
		"most go, and slices dissolve": {then: all[:40], writes: 1, deletes: 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub()
			h.plan(group("", all...))
			plan := h.plan(group("", test.then...))
			if len(plan.Writes) != test.writes || len(plan.Deletes) != test.deletes {
				t.Errorf("%d writes and %d deletes, want %d and %d", len(plan.Writes), len(plan.Deletes), test.writes, test.deletes)
			}
			h.check(t, group("", test.then...))
		})
	}
}

// Groups that change places keep their clusters where they are.
func TestObjectsFollowGroups(t *testing.T) {
	t.Parallel()
	h := newHub()
	h.plan(group("a", numbered(1, 100)...), group("b", numbered(101, 200)...))
	plan := h.plan(group("b", numbered(101, 200)...), group("a", numbered(1, 100)...))
	if len(plan.Writes) != 2 || plan.Writes[0].Status || plan.Writes[1].Status {
		t.Errorf("the labels of two objects are to change and nothing else, but: %+v", plan.Writes)
	}
	h.check(t, group("b", numbered(101, 200)...), group("a", numbered(1, 100)...))
}

// While a plan is applied, readers always find all clusters that stay selected.
func TestAddBeforeRemove(t *testing.T) {
	t.Parallel()
	h := newHub()
	h.plan(group("a", "c1", "c2", "c3"), group("b", "c4", "c5", "c6"))
	plan := h.plan(group("a", "c2", "c3"), group("b", "c1", "c4", "c5", "c6"))
	if len(plan.Writes) != 2 || plan.Writes[0].Decision.Name != "p-decision-2" {
		t.Errorf("c1 leaves its first object before it is in the second")
	}
}

// If every object gives a cluster to the next one, the last one is written first.
func TestShift(t *testing.T) {
	t.Parallel()
	h := newHub()
	h.plan(inPairs(numbered(1, 6)...)...)
	groups := inPairs(append([]string{"a-first-one"}, numbered(1, 6)...)...)
	var order []string
	for _, write := range h.plan(groups...).Writes {
		order = append(order, write.Decision.Name)
	}
	if diff := cmp.Diff([]string{"p-decision-4", "p-decision-3", "p-decision-2", "p-decision-1"}, order); diff != "" {
		t.Error(diff)
	}
	h.check(t, groups...)
}

func inPairs(clusters ...string) []placement.Group {
	var groups []placement.Group
	for pair := range slices.Chunk(clusters, 2) {
		groups = append(groups, group("", pair...))
	}
	return groups
}

// The next write is always the first that removes no cluster which another one left lists; the first of all if there is none.
func TestOrderOfRandomWrites(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	moved, exchanged := 0, 0
	for n := range 2000 {
		writes, objects := randomWrites(r)
		ordered := orderWrites(writes, objects)
		if len(ordered) != len(writes) {
			t.Fatalf("plan %d has %d writes in order, want %d", n, len(ordered), len(writes))
		}
		left := slices.Clone(writes)
		for i, write := range ordered {
			next := slices.IndexFunc(left, func(w Write) bool { return !mustWait(w, left, objects) })
			switch {
			case next < 0:
				exchanged++
				next = 0
			case next > 0:
				moved++
			}
			if want := left[next].Decision.Name; write.Decision.Name != want {
				t.Fatalf("write %d of plan %d is %s, want %s", i, n, write.Decision.Name, want)
			}
			left = slices.Delete(left, next, next+1)
		}
	}
	if moved == 0 || exchanged == 0 {
		t.Errorf("%d writes wait for others and %d writes exchange clusters, want some of both", moved, exchanged)
	}
}

// mustWait reports whether a write removes a cluster that another one lists.
func mustWait(write Write, left []Write, objects map[string]*clusterv1beta1.PlacementDecision) bool {
	object := objects[write.Decision.Name]
	return object != nil && slices.ContainsFunc(object.Status.Decisions, func(former clusterv1beta1.ClusterDecision) bool {
		return !lists(write.Decision, former.ClusterName) &&
			slices.ContainsFunc(left, func(other Write) bool { return lists(other.Decision, former.ClusterName) })
	})
}

func lists(object *clusterv1beta1.PlacementDecision, cluster string) bool {
	return slices.Contains(names(object.Status.Decisions), cluster)
}

// randomWrites returns writes of new and existing objects that list a cluster once at most. Existing ones may list it more often, as other
// writers can do that.
func randomWrites(r *rand.Rand) ([]Write, map[string]*clusterv1beta1.PlacementDecision) {
	writes, objects := make([]Write, 1+r.IntN(6)), map[string]*clusterv1beta1.PlacementDecision{}
	for i := range writes {
		writes[i].Decision = &clusterv1beta1.PlacementDecision{}
		writes[i].Decision.Name = "p-decision-" + strconv.Itoa(i+1)
		if r.IntN(4) > 0 {
			objects[writes[i].Decision.Name] = &clusterv1beta1.PlacementDecision{}
		}
	}
	list := func(object *clusterv1beta1.PlacementDecision, cluster string) {
		object.Status.Decisions = append(object.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: cluster})
	}
	for _, cluster := range numbered(1, 1+r.IntN(6)) {
		for range 1 + r.IntN(2) {
			if object := objects[writes[r.IntN(len(writes))].Decision.Name]; object != nil {
				list(object, cluster)
			}
		}
		if r.IntN(5) > 0 {
			list(writes[r.IntN(len(writes))].Decision, cluster)
		}
	}
	return writes, objects
}

// PL-14
func TestScoreRateLimit(t *testing.T) {
	t.Parallel()
	h := newHub()
	h.plan(group("", "c1", "c2"))
	changed := group("", "c1", "c2")
	changed.Decisions[0].Score = 50

	h.now = start.Add(59 * time.Second)
	plan := h.plan(changed)
	if len(plan.Writes) != 0 || !plan.ScoresDue.Equal(start.Add(time.Minute)) {
		t.Fatalf("scores are written too early, or not due after a minute: %+v", plan)
	}
	if plan := h.plan(group("", "c1", "c2")); !plan.ScoresDue.IsZero() {
		t.Error("scores are due that have not changed")
	}
	h.now = start.Add(time.Minute)
	plan = h.plan(changed)
	if len(plan.Writes) != 1 || !plan.Writes[0].Status || !plan.ScoresDue.IsZero() {
		t.Fatalf("scores are not written after a minute: %+v", plan)
	}
	other := group("", "c1", "c3")
	other.Decisions[0].Score = 70
	if plan := h.plan(other); len(plan.Writes) != 1 || h.objects[0].Status.Decisions[0].Score != 70 {
		t.Errorf("other clusters come with their scores at once: %+v", plan)
	}
}

// PL-14
func TestSortByScore(t *testing.T) {
	t.Parallel()
	h := newHub()
	h.owner.Spec.SortBy = clusterv1beta1.SortByScore
	h.rateLimit = 0
	clusters := numbered(1, 150)
	slices.Reverse(clusters)
	h.plan(group("", clusters...))
	content := h.content()
	if !slices.Equal(content["p-decision-1"], clusters[:100]) || !slices.Equal(content["p-decision-2"], clusters[100:]) {
		t.Errorf("not in the order of the scores: %v", content)
	}
	clusters[0], clusters[1] = clusters[1], clusters[0]
	if plan := h.plan(group("", clusters...)); len(plan.Writes) != 1 || h.content()["p-decision-1"][0] != clusters[0] {
		t.Errorf("two that change places are one write: %+v", plan.Writes)
	}
}

// Objects that another writer has changed, or Open Cluster Management has written, are repaired.
func TestRepair(t *testing.T) {
	t.Parallel()
	h := newHub()
	h.plan(group("", "c1"))
	edited := h.objects[0].DeepCopy()
	delete(edited.Labels, fleet.LabelDecisionGroupIndex)
	edited.OwnerReferences = nil
	edited.Status.Decisions = append(edited.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: "c9"})
	h.objects = []*clusterv1beta1.PlacementDecision{edited}
	plan := h.plan(group("", "c1"))
	if len(plan.Writes) != 1 || !plan.Writes[0].Metadata || !plan.Writes[0].Status || plan.Writes[0].Create {
		t.Errorf("%+v", plan.Writes)
	}
	h.check(t, group("", "c1"))
	if len(edited.Status.Decisions) != 2 {
		t.Error("an object that was passed in has been changed")
	}
}

// Whatever is selected, what is written is just that.
func TestRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		h := newHub()
		for range 40 {
			h.owner.Spec.SortBy = []clusterv1beta1.SortBy{"", clusterv1beta1.SortByScore}[r.IntN(8)/7]
			h.now = h.now.Add(time.Hour)
			groups := randomGroups(r)
			h.plan(groups...)
			h.check(t, groups...)
			if plan := h.plan(groups...); len(plan.Writes)+len(plan.Deletes) > 0 && h.owner.Spec.SortBy == "" {
				t.Fatalf("seed %d: nothing changed, and yet: %+v", seed, plan)
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

func randomGroups(r *rand.Rand) []placement.Group {
	clusters := numbered(1, 400)
	clusters = slices.DeleteFunc(clusters, func(string) bool { return r.IntN(4) == 0 })
	clusters = clusters[:r.IntN(len(clusters))]
	var groups []placement.Group
	for i := range r.IntN(3) {
		n := r.IntN(len(clusters) + 1)
		if n > 0 {
			groups = append(groups, group("g"+strconv.Itoa(i), clusters[:n]...))
		}
		clusters = clusters[n:]
	}
	if len(clusters) > 0 || len(groups) == 0 {
		groups = append(groups, group("", clusters...))
	}
	return groups
}

// check compares the objects with the groups.
func (h *fakeHub) check(t *testing.T, groups ...placement.Group) {
	t.Helper()
	found := make([][]string, len(groups))
	for _, object := range h.objects {
		index, err := strconv.Atoi(object.Labels[fleet.LabelDecisionGroupIndex])
		if err != nil || index >= len(groups) || object.Labels[fleet.LabelDecisionGroupName] != groups[index].Name {
			t.Errorf("%s has the labels %v", object.Name, object.Labels)
			continue
		}
		if len(object.Status.Decisions) > 100 || (len(object.Status.Decisions) == 0 && len(h.objects) > 1) {
			t.Errorf("%s has %d decisions", object.Name, len(object.Status.Decisions))
		}
		found[index] = append(found[index], names(object.Status.Decisions)...)
	}
	for i, group := range groups {
		want := names(group.Decisions)
		slices.Sort(want)
		slices.Sort(found[i])
		if !slices.Equal(want, found[i]) {
			t.Errorf("group %d has %v, want %v", i, found[i], want)
		}
	}
	for i := range h.objects {
		name := "p-decision-" + strconv.Itoa(i+1)
		if !slices.ContainsFunc(h.objects, func(o *clusterv1beta1.PlacementDecision) bool { return o.Name == name }) {
			t.Errorf("there is no %s among %d objects", name, len(h.objects))
		}
	}
}
