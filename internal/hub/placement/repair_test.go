package placement

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// PL-16 PL-22 PL-27: a decision that has lost its label or owner gets it back, in one reconcile and without a retry.
func TestDecisionIsFoundAgain(t *testing.T) {
	t.Parallel()
	for name, how := range map[string][]decisionOption{
		"no label":                        {withPlacementLabel("")},
		"the label of none":               {withPlacementLabel("ghost")},
		"the label of a misconfigured":    {withPlacementLabel("broken")},
		"the label of a disabled":         {withPlacementLabel("disabled")},
		"no owner":                        {func(d *clusterv1beta1.PlacementDecision) { d.OwnerReferences = nil }},
		"neither":                         {withPlacementLabel(""), func(d *clusterv1beta1.PlacementDecision) { d.OwnerReferences = nil }},
		"another owner":                   {withController("v1", "ConfigMap", "9")},
		"a former placement of that name": {withPlacement("0")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			creates := 0
			b := newControllerTest(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object,
				opts ...client.CreateOption) error {
				creates++
				return c.Create(ctx, o, opts...)
			}})
			broken, disabled := newPlacement(clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{{Operator: "Nonsense"}}}),
				newPlacement(clusterv1beta1.PlacementSpec{})
			broken.Name, disabled.Name, disabled.Annotations = "broken", "disabled", map[string]string{fleet.AnnotationSchedulingDisable: "true"}
			b.scheduler.SetPlacement(broken)
			b.scheduler.SetPlacement(disabled)
			b.schedulePlacement(t, clusterv1beta1.PlacementSpec{})
			creates = 0
			if waiting := b.editDecision(t, how...); len(waiting) == 0 || waiting[0] != "web" {
				t.Errorf("%v are waiting", waiting)
			}
			if got := b.reconcile(t); !got.IsZero() || creates > 0 {
				t.Errorf("it is tried again: %+v, after %d creates", got, creates)
			}
			b.wantDecision(t, "web-decision-1", "a", "b")
		})
	}
}

// PL-16 PL-27: a name of an object of another owner is not used until it is free. An object without an owner is adopted.
func TestTakenNameIsSkipped(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		other *clusterv1beta1.PlacementDecision
		want  string
	}{
		"of another controller": {newDecision("web-decision-1", withPlacementLabel(""), withController("v1", "ConfigMap", "9"),
			withClusters("z")),
			"web-decision-2"},
		"of another placement": {newDecision("web-decision-1", withPlacementLabel("ghost"), withClusters("z")), "web-decision-2"},
		"without owner":        {newDecision("web-decision-1", withPlacementLabel(""), withClusters("z")), "web-decision-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newControllerTest(t, interceptor.Funcs{})
			b.addDecision(t, test.other)
			b.schedulePlacement(t, clusterv1beta1.PlacementSpec{})
			b.wantDecision(t, test.want, "a", "b")
			if test.want == "web-decision-1" {
				return
			}
			if got := b.decision(t, "web-decision-1"); len(got.Status.Decisions) != 1 || got.Status.Decisions[0].ClusterName != "z" {
				t.Errorf("the object of another owner was changed: %+v", got)
			}
			if waiting := b.deleteDecision(t, "web-decision-1"); waiting[len(waiting)-1] != "web" {
				t.Errorf("%v are waiting", waiting)
			}
			b.reconcile(t)
			b.wantDecision(t, "web-decision-1", "a", "b")
		})
	}
}

// PL-22: changes of decisions by other writers are handled, those by the controller are not.
func TestDecisionsAreRepaired(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after []string
		other         []string // in another object
		want          bool
	}{
		"it was decided":              {nil, []string{"a"}, nil, false},
		"another was given up":        {[]string{"a", "z"}, []string{"a"}, nil, false},
		"nothing":                     {[]string{"a"}, []string{"a"}, nil, false},
		"one was taken away":          {[]string{"a"}, nil, nil, true},
		"one was added":               {[]string{"a"}, []string{"a", "z"}, nil, true},
		"one was added a second time": {[]string{"a"}, []string{"a", "b"}, []string{"b"}, true},
		"one has moved":               {[]string{"a", "b"}, []string{"a"}, []string{"b"}, false},
		"one moves and one goes":      {[]string{"a", "b"}, nil, []string{"b"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newControllerTest(t, interceptor.Funcs{})
			b.scheduler.SetPlacement(newPlacement(clusterv1beta1.PlacementSpec{}))
			b.scheduler.Schedule(web)
			b.addDecision(t, newDecision("web-decision-1", withClusters(test.before...)))
			b.addDecision(t, newDecision("web-decision-2", withClusters(test.other...)))
			if waiting := b.editDecision(t, withClusters(test.after...)); (len(waiting) > 0) != test.want {
				t.Errorf("%v are waiting", waiting)
			}
		})
	}
}

// PL-22: of a change, no more is looked at than the clusters that it is about, however many the placement has.
func TestRepairOfManyDecisions(t *testing.T) {
	t.Parallel()
	var own []*clusterv1beta1.PlacementDecision
	for i := range 20 {
		d := newDecision(fmt.Sprintf("web-decision-%d", i))
		for j := range clusterv1beta1.MaxDecisionsPerObject {
			d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: fmt.Sprintf("c%d-%d", i, j)})
		}
		own = append(own, d)
	}
	ch := decisionChange{after: own[0], added: []string{"c0-0", "c7-7"}, removed: []string{"c9-9", "gone"}}
	want := map[string]bool{"c0-0": false, "c7-7": true, "c9-9": true, "gone": false}
	if diff := cmp.Diff(want, ch.listedElsewhere(own)); diff != "" {
		t.Errorf("what other objects list (-want +got):\n%s", diff)
	}
}

// PL-22: an additional decision with clusters that are selected lists them twice, and is deleted.
func TestSelectedTwice(t *testing.T) {
	t.Parallel()
	b := newControllerTest(t, interceptor.Funcs{})
	b.schedulePlacement(t, clusterv1beta1.PlacementSpec{})
	if waiting := b.addDecision(t, newDecision("theirs", withClusters("a"))); len(waiting) != 1 {
		t.Errorf("%v are waiting", waiting)
	}
	b.reconcile(t)
	b.wantDecision(t, "web-decision-1", "a", "b")
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "theirs"},
		&clusterv1beta1.PlacementDecision{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
}

// PL-22: an empty decision that another writer creates is deleted at once; one that the hub creates, which is empty at first, is
// not.
func TestEmptyDecision(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		added *clusterv1beta1.PlacementDecision
		want  bool
	}{
		"of another writer":              {newDecision("theirs"), true},
		"of another writer, by its name": {newDecision("web-decision-2"), true},
		"of another controller":          {newDecision("web-decision-2", withController("v1", "ConfigMap", "9")), true},
		"of the hub":                     {newDecision("web-decision-2", withPlacement("1")), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newControllerTest(t, interceptor.Funcs{})
			b.schedulePlacement(t, clusterv1beta1.PlacementSpec{})
			if waiting := b.addDecision(t, test.added); (len(waiting) > 0) != test.want {
				t.Fatalf("%v are waiting", waiting)
			}
			b.reconcile(t)
			err := b.client.Get(t.Context(), client.ObjectKeyFromObject(test.added), &clusterv1beta1.PlacementDecision{})
			if test.want && !apierrors.IsNotFound(err) {
				t.Errorf("it is still there: %v", err)
			}
		})
	}
}

// PL-26 P11: decisions of a misconfigured placement are restored after changes by other writers.
func TestMisconfiguredPlacementIsRepaired(t *testing.T) {
	t.Parallel()
	b := newControllerTest(t, interceptor.Funcs{})
	b.schedulePlacement(t, clusterv1beta1.PlacementSpec{})
	p := &clusterv1beta1.Placement{}
	if err := b.client.Get(t.Context(), web, p); err != nil {
		t.Fatal(err)
	}
	p.Spec.Tolerations = []clusterv1beta1.Toleration{{Operator: "Nonsense"}}
	if err := b.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	b.scheduler.SetPlacement(p.DeepCopy())
	b.reconcile(t)
	for name, edit := range map[string]func() []string{
		"deleted":    func() []string { return b.deleteDecision(t, "web-decision-1") },
		"edited":     func() []string { return b.editDecision(t, withClusters("a", "z")) },
		"emptied":    func() []string { return b.editDecision(t, withClusters()) },
		"relabelled": func() []string { return b.editDecision(t, withPlacementLabel("")) },
	} {
		if waiting := edit(); len(waiting) == 0 {
			t.Errorf("%s: no placement is enqueued", name)
		}
		if got := b.reconcile(t); !got.IsZero() {
			t.Errorf("%s: it is tried again: %+v", name, got)
		}
		b.wantDecision(t, "web-decision-1", "a", "b")
	}
}

// PL-16: a placement that was always misconfigured has an object, too, unless its name is too long for the label.
func TestMisconfiguredFromTheStart(t *testing.T) {
	t.Parallel()
	b := newControllerTest(t, interceptor.Funcs{})
	b.schedulePlacement(t, clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{{Operator: "Nonsense"}}})
	b.wantDecision(t, "web-decision-1")
	p := &clusterv1beta1.Placement{}
	if err := b.client.Get(t.Context(), web, p); err != nil {
		t.Fatal(err)
	}
	want := []clusterv1beta1.DecisionGroupStatus{{Decisions: []string{"web-decision-1"}}}
	if diff := cmp.Diff(want, p.Status.DecisionGroups); diff != "" ||
		!meta.IsStatusConditionTrue(p.Status.Conditions, fleet.ConditionPlacementMisconfigured) {
		t.Errorf("status %+v", p.Status)
	}

	long := newPlacement(clusterv1beta1.PlacementSpec{})
	long.Name = "a-placement-with-a-name-of-more-than-sixty-three-characters-is-too-long"
	if err := b.client.Create(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	b.scheduler.SetPlacement(long.DeepCopy())
	if _, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(long)}); err != nil {
		t.Fatal(err)
	}
	if own, _, err := decisionsOf(t.Context(), b.client, client.ObjectKeyFromObject(long)); err != nil || len(own) > 0 {
		t.Errorf("%v, %v", own, err)
	}
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(long), long); err != nil ||
		!meta.IsStatusConditionTrue(long.Status.Conditions, fleet.ConditionPlacementMisconfigured) {
		t.Errorf("%v, status %+v", err, long.Status)
	}
}
