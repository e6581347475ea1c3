package placement

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement/decisions"
)

// PL-21, with PL-09 and PL-04: nothing of a disabled placement is written or deleted. Decisions of other writers are
// what it has when it is enabled again.
func TestDisabledPlacement(t *testing.T) {
	t.Parallel()
	var written []string
	note := func(o client.Object) { written = append(written, o.GetName()) }
	b := newControllerTest(t, interceptor.Funcs{
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
	b.schedulePlacement(t, clusterv1beta1.PlacementSpec{NumberOfClusters: &one})
	b.wantDecision(t, "web-decision-1", "a")
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
	if waiting := b.editDecision(t, withClusters("a", "b")); len(waiting) != 1 {
		t.Errorf("%v are waiting", waiting)
	}
	b.scheduler.SetPlacement(disabled.DeepCopy())
	written = nil
	b.reconcile(t)
	if !b.scheduler.Selects(web, "b") {
		t.Error("what was decided before it was known to be disabled is not known")
	}
	b.addDecision(t, newDecision("theirs", withClusters("z")))
	if waiting := append(b.editDecision(t, withPlacementLabel("web"), withClusters("b")),
		b.deleteDecision(t, "theirs")...); len(waiting) == 0 {
		t.Error("no placement is enqueued")
	}
	written = nil
	if got := b.reconcile(t); !got.IsZero() || len(written) > 0 {
		t.Errorf("again %+v, written %v", got, written)
	}
	if !b.scheduler.Selects(web, "b") || b.scheduler.Selects(web, "a") || b.scheduler.Selects(web, "z") {
		t.Error("what others decide is not known")
	}

	if err := b.client.Get(t.Context(), web, disabled); err != nil {
		t.Fatal(err)
	}
	enabled := disabled.DeepCopy()
	enabled.Annotations, enabled.Spec.Tolerations = nil, nil
	if err := b.client.Update(t.Context(), enabled); err != nil {
		t.Fatal(err)
	}
	b.scheduler.SetCluster(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "b",
		Labels: map[string]string{fleet.LabelClusterSet: "set"}},
		Spec: clusterv1.ManagedClusterSpec{Taints: []clusterv1.Taint{{Key: "full", Effect: clusterv1.TaintEffectNoSelectIfNew}}}})
	b.scheduler.SetPlacement(enabled.DeepCopy())
	b.reconcile(t)
	b.wantDecision(t, "web-decision-1", "b")
}

// balance is the scores of the clusters by Balance for another placement.
func (b *controllerTest) balance(t *testing.T) map[string]int64 {
	other := newPlacement(clusterv1beta1.PlacementSpec{
		PrioritizerPolicy: clusterv1beta1.PrioritizerPolicy{Mode: clusterv1beta1.PrioritizerPolicyModeExact,
			Configurations: []clusterv1beta1.PrioritizerConfig{{Weight: 1,
				ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{BuiltIn: clusterv1beta1.PrioritizerBalance}}}}})
	other.Name = "other"
	scores := map[string]int64{}
	for _, score := range b.scheduler.Explain(t.Context(), other).Scores {
		scores[score.ClusterName] = score.Score
	}
	return scores
}

// PL-10: decisions count for as long as they exist, also those of a deleted placement.
func TestDecisionsOutliveTheirPlacement(t *testing.T) {
	t.Parallel()
	var meanwhile func()
	b := newControllerTest(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
		opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		if meanwhile != nil {
			now := meanwhile
			meanwhile = nil
			now()
		}
		return err
	}})
	b.schedulePlacement(t, clusterv1beta1.PlacementSpec{})
	p := newPlacement(clusterv1beta1.PlacementSpec{})
	if err := b.client.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	b.scheduler.DeletePlacement(web)
	b.reconcile(t)
	if diff := cmp.Diff(map[string]int64{"a": -100, "b": -100}, b.balance(t)); diff != "" {
		t.Error(diff)
	}
	// The last one is deleted just after it was listed for the scheduler.
	var waiting []string
	meanwhile = func() { waiting = b.deleteDecision(t, "web-decision-1") }
	b.reconcile(t)
	if len(waiting) > 0 {
		b.reconcile(t)
	}
	if diff := cmp.Diff(map[string]int64{"a": 100, "b": 100}, b.balance(t)); diff != "" {
		t.Error(diff)
	}
}

// PL-10, PL-04: a placement does not get the decisions of a former one of its name, in whatever order the events arrive.
func TestRecreatedPlacementStartsEmpty(t *testing.T) {
	t.Parallel()
	former := newPlacement(clusterv1beta1.PlacementSpec{})
	former.UID = "0"
	known := func(b *controllerTest) {
		b.scheduler.SetPlacement(former.DeepCopy())
		b.scheduler.Restore(web, decisions.GroupsOf([]*clusterv1beta1.PlacementDecision{newDecision("web-decision-1", withClusters("b"))}))
	}
	for name, test := range map[string]struct {
		before func(*testing.T, *controllerTest)
		of     decisionOption
		want   string
	}{
		"the hub starts":        {func(*testing.T, *controllerTest) {}, withPlacement("0"), "a"},
		"one follows the other": {func(_ *testing.T, b *controllerTest) { known(b) }, withPlacement("0"), "a"},
		"it is gone": {func(_ *testing.T, b *controllerTest) { known(b); b.scheduler.DeletePlacement(web) }, withPlacement("0"),
			"a"},
		"it is gone for some time":    {func(t *testing.T, b *controllerTest) { b.reconcile(t) }, withPlacement("0"), "a"},
		"the decisions are its own":   {func(t *testing.T, b *controllerTest) { b.reconcile(t) }, withPlacement("1"), "b"},
		"the decisions have no owner": {func(t *testing.T, b *controllerTest) { b.reconcile(t) }, withPlacementLabel("web"), "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newControllerTest(t, interceptor.Funcs{})
			b.addDecision(t, newDecision("web-decision-1", test.of, withClusters("b")))
			test.before(t, b)
			one := int32(1)
			b.schedulePlacement(t, clusterv1beta1.PlacementSpec{NumberOfClusters: &one})
			b.wantDecision(t, "web-decision-1", test.want)
		})
	}
}

// PL-10: while a placement is pending, nothing is written to the decisions of a former one of its name: they go with that one, and until
// the new one is decided, nobody takes its clusters for deselected.
func TestRecreatedPlacementIsPending(t *testing.T) {
	t.Parallel()
	b := newControllerTest(t, interceptor.Funcs{})
	b.addDecision(t, newDecision("web-decision-1", withPlacement("0"), withClusters("a", "b")))
	before := b.decision(t, "web-decision-1")
	b.schedulePlacement(t, withCEL(0).Spec)
	if diff := cmp.Diff(before, b.decision(t, "web-decision-1")); diff != "" {
		t.Errorf("it is written (-before +after):\n%s", diff)
	}
}

// PL-14: the time at which scores were written is not lost if the status of the placement could not be written.
func TestLastScoreUpdateIsNotLost(t *testing.T) {
	t.Parallel()
	fail := false
	written := metav1.NewTime(start.Add(-10 * time.Second))
	b := newControllerTest(t, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if _, ok := o.(*clusterv1beta1.Placement); ok && fail {
				return apierrors.NewConflict(clusterv1beta1.GroupVersion.WithResource("placements").GroupResource(), o.GetName(), nil)
			}
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
		// The API server records when a status was written.
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
	b.schedulePlacement(t, clusterv1beta1.PlacementSpec{})
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
