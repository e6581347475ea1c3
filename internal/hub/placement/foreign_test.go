package placement

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/fleet"
)

// decisionOption changes a PlacementDecision.
type decisionOption func(*clusterv1beta1.PlacementDecision)

// aDecision has the label of the placement web.
func aDecision(name string, options ...decisionOption) *clusterv1beta1.PlacementDecision {
	d := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, Labels: map[string]string{fleet.LabelPlacement: "web"}}}
	for _, option := range options {
		option(d)
	}
	return d
}

func labelled(placement string) decisionOption {
	return func(d *clusterv1beta1.PlacementDecision) {
		d.Labels = map[string]string{fleet.LabelPlacement: placement}
		maps.DeleteFunc(d.Labels, func(_, value string) bool { return value == "" })
	}
}

func controlledBy(apiVersion, kind, name string, uid types.UID) decisionOption {
	yes := true
	return func(d *clusterv1beta1.PlacementDecision) {
		d.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid, Controller: &yes}}
	}
}

func ofPlacement(name string, uid types.UID) decisionOption {
	return controlledBy(clusterv1beta1.GroupVersion.String(), "Placement", name, uid)
}

func listing(clusters ...string) decisionOption {
	return func(d *clusterv1beta1.PlacementDecision) {
		d.Status.Decisions = nil
		for _, name := range clusters {
			d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: name})
		}
	}
}

// place adds the placement web to the bench, and decides.
func (b *bench) place(t *testing.T, spec clusterv1beta1.PlacementSpec) {
	t.Helper()
	p := aPlacement(spec)
	if err := b.client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	b.scheduler.SetPlacement(p)
	b.reconcile(t)
}

func (b *bench) get(t *testing.T, name string) *clusterv1beta1.PlacementDecision {
	t.Helper()
	d := &clusterv1beta1.PlacementDecision{}
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: name}, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// meddle does something to a PlacementDecision, lets the controller see it, and returns whom that makes wait.
func (b *bench) meddle(t *testing.T, name string, how ...decisionOption) (waiting []string) {
	t.Helper()
	before := b.get(t, name)
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
	return b.seen(t, before, after)
}

// add is what meddle is to one that is new.
func (b *bench) add(t *testing.T, d *clusterv1beta1.PlacementDecision) (waiting []string) {
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
	return append(b.seen(t, nil, empty), b.seen(t, empty, d)...)
}

// drop is what meddle is to one that is deleted.
func (b *bench) drop(t *testing.T, name string) (waiting []string) {
	t.Helper()
	d := b.get(t, name)
	if err := b.client.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return b.seen(t, d, nil)
}

// seen are the placements that wait after a change.
func (b *bench) seen(t *testing.T, before, after *clusterv1beta1.PlacementDecision) (waiting []string) {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	b.see(t.Context(), b.client, q, before, after)
	for q.Len() > 0 {
		next, _ := q.Get()
		waiting = append(waiting, next.Name)
		q.Done(next)
	}
	return waiting
}

// wantOwn checks that all is as if nobody had meddled.
func (b *bench) wantOwn(t *testing.T, name string, clusters ...string) {
	t.Helper()
	d := b.get(t, name)
	want := map[string]string{fleet.LabelPlacement: "web", fleet.LabelDecisionGroupIndex: "0", fleet.LabelDecisionGroupName: ""}
	if diff := cmp.Diff(want, d.Labels); diff != "" || !metav1.IsControlledBy(d, aPlacement(clusterv1beta1.PlacementSpec{})) {
		t.Errorf("%s has the owners %v, and labels (-want +got):\n%s", name, d.OwnerReferences, diff)
	}
	if diff := cmp.Diff(clusters, b.selected(t)); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
}

// PL-16 PL-22 PL-27: a decision that has lost what it is found by gets it back, in one pass and without another try.
func TestDecisionIsFoundAgain(t *testing.T) {
	t.Parallel()
	for name, how := range map[string][]decisionOption{
		"no label":                        {labelled("")},
		"the label of none":               {labelled("ghost")},
		"the label of a misconfigured":    {labelled("broken")},
		"the label of a disabled":         {labelled("disabled")},
		"no owner":                        {func(d *clusterv1beta1.PlacementDecision) { d.OwnerReferences = nil }},
		"neither":                         {labelled(""), func(d *clusterv1beta1.PlacementDecision) { d.OwnerReferences = nil }},
		"another owner":                   {controlledBy("v1", "ConfigMap", "web", "9")},
		"a former placement of that name": {ofPlacement("web", "0")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			creates := 0
			b := newBench(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				creates++
				return c.Create(ctx, o, opts...)
			}})
			broken, disabled := aPlacement(clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{{Operator: "Nonsense"}}}), aPlacement(clusterv1beta1.PlacementSpec{})
			broken.Name, disabled.Name, disabled.Annotations = "broken", "disabled", map[string]string{fleet.AnnotationSchedulingDisable: "true"}
			b.scheduler.SetPlacement(broken)
			b.scheduler.SetPlacement(disabled)
			b.place(t, clusterv1beta1.PlacementSpec{})
			creates = 0
			if waiting := b.meddle(t, "web-decision-1", how...); len(waiting) == 0 || waiting[0] != "web" {
				t.Errorf("%v are waiting", waiting)
			}
			if got := b.reconcile(t); !got.IsZero() || creates > 0 {
				t.Errorf("it is tried again: %+v, after %d creates", got, creates)
			}
			b.wantOwn(t, "web-decision-1", "a", "b")
		})
	}
}

// PL-16 PL-27: a name that somebody else has is left to them, and taken as soon as it is free. What nobody has is taken over.
func TestNameOfSomebodyElse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		other *clusterv1beta1.PlacementDecision
		want  string
	}{
		"of another controller": {aDecision("web-decision-1", labelled(""), controlledBy("v1", "ConfigMap", "web", "9"), listing("z")), "web-decision-2"},
		"of another placement":  {aDecision("web-decision-1", labelled("ghost"), listing("z")), "web-decision-2"},
		"of nobody":             {aDecision("web-decision-1", labelled(""), listing("z")), "web-decision-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, interceptor.Funcs{})
			b.add(t, test.other)
			b.place(t, clusterv1beta1.PlacementSpec{})
			b.wantOwn(t, test.want, "a", "b")
			if test.want == "web-decision-1" {
				return
			}
			if got := b.get(t, "web-decision-1"); len(got.Status.Decisions) != 1 || got.Status.Decisions[0].ClusterName != "z" {
				t.Errorf("that of somebody else was changed: %+v", got)
			}
			if waiting := b.drop(t, "web-decision-1"); waiting[len(waiting)-1] != "web" {
				t.Errorf("%v are waiting", waiting)
			}
			b.reconcile(t)
			b.wantOwn(t, "web-decision-1", "a", "b")
		})
	}
}

// PL-22: what others do to decisions is looked at; what the controller itself wrote is not.
func TestWrongDecisions(t *testing.T) {
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, interceptor.Funcs{})
			b.scheduler.SetPlacement(aPlacement(clusterv1beta1.PlacementSpec{}))
			b.scheduler.Schedule(web)
			b.add(t, aDecision("web-decision-1", listing(test.before...)))
			b.add(t, aDecision("web-decision-2", listing(test.other...)))
			if waiting := b.meddle(t, "web-decision-1", listing(test.after...)); (len(waiting) > 0) != test.want {
				t.Errorf("%v are waiting", waiting)
			}
		})
	}
}

// PL-22: a decision that somebody adds, with clusters that are selected, would list them twice.
func TestSelectedTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t, interceptor.Funcs{})
	b.place(t, clusterv1beta1.PlacementSpec{})
	if waiting := b.add(t, aDecision("theirs", listing("a"))); len(waiting) != 1 {
		t.Errorf("%v are waiting", waiting)
	}
	b.reconcile(t)
	b.wantOwn(t, "web-decision-1", "a", "b")
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "theirs"}, &clusterv1beta1.PlacementDecision{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
}

// PL-26 P11: decisions of a placement that makes no sense are kept, whatever others do to them.
func TestBrokenPlacementIsGuarded(t *testing.T) {
	t.Parallel()
	b := newBench(t, interceptor.Funcs{})
	b.place(t, clusterv1beta1.PlacementSpec{})
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
	for name, meddle := range map[string]func() []string{
		"deleted":    func() []string { return b.drop(t, "web-decision-1") },
		"edited":     func() []string { return b.meddle(t, "web-decision-1", listing("a", "z")) },
		"emptied":    func() []string { return b.meddle(t, "web-decision-1", listing()) },
		"relabelled": func() []string { return b.meddle(t, "web-decision-1", labelled("")) },
	} {
		if waiting := meddle(); len(waiting) == 0 {
			t.Errorf("%s: nobody is waiting", name)
		}
		if got := b.reconcile(t); !got.IsZero() {
			t.Errorf("%s: it is tried again: %+v", name, got)
		}
		b.wantOwn(t, "web-decision-1", "a", "b")
	}
}

// PL-16: a placement that never made sense has an object, too, unless its name is too long for the label.
func TestNeverValid(t *testing.T) {
	t.Parallel()
	b := newBench(t, interceptor.Funcs{})
	b.place(t, clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{{Operator: "Nonsense"}}})
	b.wantOwn(t, "web-decision-1")
	p := &clusterv1beta1.Placement{}
	if err := b.client.Get(t.Context(), web, p); err != nil {
		t.Fatal(err)
	}
	want := []clusterv1beta1.DecisionGroupStatus{{Decisions: []string{"web-decision-1"}}}
	if diff := cmp.Diff(want, p.Status.DecisionGroups); diff != "" || !meta.IsStatusConditionTrue(p.Status.Conditions, fleet.ConditionPlacementMisconfigured) {
		t.Errorf("status %+v", p.Status)
	}

	long := aPlacement(clusterv1beta1.PlacementSpec{})
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
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(long), long); err != nil || !meta.IsStatusConditionTrue(long.Status.Conditions, fleet.ConditionPlacementMisconfigured) {
		t.Errorf("%v, status %+v", err, long.Status)
	}
}

// PL-21, with PL-09 and PL-04: nothing of a disabled placement is written or deleted. What others decide for it meanwhile is
// what it has once it is enabled again.
func TestDisabledPlacement(t *testing.T) {
	t.Parallel()
	var written []string
	note := func(o client.Object) { written = append(written, o.GetName()) }
	b := newBench(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			note(o)
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			note(o)
			return c.Update(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			note(o)
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			note(o)
			return c.Delete(ctx, o, opts...)
		},
	})
	one := int32(1)
	b.place(t, clusterv1beta1.PlacementSpec{NumberOfClusters: &one})
	b.wantOwn(t, "web-decision-1", "a")
	p := &clusterv1beta1.Placement{}
	if err := b.client.Get(t.Context(), web, p); err != nil {
		t.Fatal(err)
	}
	disabled := p.DeepCopy()
	disabled.Annotations = map[string]string{fleet.AnnotationSchedulingDisable: "true"}
	disabled.Spec.Tolerations = []clusterv1beta1.Toleration{{Operator: "Nonsense"}}
	if err := b.client.Update(t.Context(), disabled); err != nil {
		t.Fatal(err)
	}
	// An edit that the controller sees before it knows that the placement is disabled.
	if waiting := b.meddle(t, "web-decision-1", listing("a", "b")); len(waiting) != 1 {
		t.Errorf("%v are waiting", waiting)
	}
	b.scheduler.SetPlacement(disabled.DeepCopy())
	written = nil
	b.reconcile(t)
	if !b.scheduler.Selects(web, "b") {
		t.Error("what was decided before it was known to be disabled is not known")
	}
	b.add(t, aDecision("theirs", listing("z")))
	if waiting := append(b.meddle(t, "web-decision-1", labelled("web"), listing("b")), b.drop(t, "theirs")...); len(waiting) > 0 {
		t.Errorf("%v are waiting", waiting)
	}
	if !b.scheduler.Selects(web, "b") || b.scheduler.Selects(web, "a") || b.scheduler.Selects(web, "z") {
		t.Error("what others decide is not known")
	}
	written = nil
	if got := b.reconcile(t); !got.IsZero() || len(written) > 0 {
		t.Errorf("again %+v, written %v", got, written)
	}

	if err := b.client.Get(t.Context(), web, disabled); err != nil {
		t.Fatal(err)
	}
	enabled := disabled.DeepCopy()
	enabled.Annotations, enabled.Spec.Tolerations = nil, nil
	if err := b.client.Update(t.Context(), enabled); err != nil {
		t.Fatal(err)
	}
	b.scheduler.SetCluster(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{fleet.LabelClusterSet: "set"}},
		Spec: clusterv1.ManagedClusterSpec{Taints: []clusterv1.Taint{{Key: "full", Effect: clusterv1.TaintEffectNoSelectIfNew}}}})
	b.scheduler.SetPlacement(enabled.DeepCopy())
	b.reconcile(t)
	b.wantOwn(t, "web-decision-1", "b")
}

// PL-10: decisions count for as long as they are there, and that of a placement that is gone are gone.
func TestDecisionsOutliveTheirPlacement(t *testing.T) {
	t.Parallel()
	b := newBench(t, interceptor.Funcs{})
	b.place(t, clusterv1beta1.PlacementSpec{})
	p := aPlacement(clusterv1beta1.PlacementSpec{})
	if err := b.client.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	b.scheduler.DeletePlacement(web)
	b.reconcile(t)
	balance := func() map[string]int64 {
		other := aPlacement(clusterv1beta1.PlacementSpec{PrioritizerPolicy: clusterv1beta1.PrioritizerPolicy{Mode: clusterv1beta1.PrioritizerPolicyModeExact,
			Configurations: []clusterv1beta1.PrioritizerConfig{{Weight: 1, ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{BuiltIn: clusterv1beta1.PrioritizerBalance}}}}})
		other.Name = "other"
		scores := map[string]int64{}
		for _, score := range b.scheduler.Explain(other).Scores {
			scores[score.ClusterName] = score.Score
		}
		return scores
	}
	if diff := cmp.Diff(map[string]int64{"a": -100, "b": -100}, balance()); diff != "" {
		t.Error(diff)
	}
	b.drop(t, "web-decision-1")
	if diff := cmp.Diff(map[string]int64{"a": 100, "b": 100}, balance()); diff != "" {
		t.Error(diff)
	}
}

// PL-14: when scores were written is not lost when the status of the placement could not be.
func TestLastScoreUpdateIsNotLost(t *testing.T) {
	t.Parallel()
	fail := false
	written := metav1.NewTime(start.Add(-10 * time.Second))
	b := newBench(t, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if _, ok := o.(*clusterv1beta1.Placement); ok && fail {
				return apierrors.NewConflict(clusterv1beta1.GroupVersion.WithResource("placements").GroupResource(), o.GetName(), nil)
			}
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
		// The API server notes when a status was written.
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if decisions, ok := list.(*clusterv1beta1.PlacementDecisionList); ok {
				for i := range decisions.Items {
					decisions.Items[i].ManagedFields = []metav1.ManagedFieldsEntry{{Subresource: "status", Time: &written}}
				}
			}
			return err
		},
	})
	fail = true
	b.place(t, clusterv1beta1.PlacementSpec{})
	fail = false
	b.reconcile(t)
	p := &clusterv1beta1.Placement{}
	if err := b.client.Get(t.Context(), web, p); err != nil {
		t.Fatal(err)
	}
	if !p.Status.LastScoreUpdateTime.Equal(&written) {
		t.Errorf("scores were last written at %s, want %s", p.Status.LastScoreUpdateTime, written)
	}
}
