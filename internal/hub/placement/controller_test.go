package placement

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	scheduler "github.com/capstan-io/capstan/internal/placement"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// controllerTest is a controller of a fleet of two clusters, a and b, in the set that is bound to the namespace team-a.
type controllerTest struct {
	*Controller
	clock  *clocktesting.FakeClock
	events *events.FakeRecorder
}

func newControllerTest(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *controllerTest {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clusterv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).
		WithStatusSubresource(&clusterv1beta1.Placement{}, &clusterv1beta1.PlacementDecision{}).
		WithIndex(&clusterv1beta1.PlacementDecision{}, byPlacement, relatedPlacements).Build()
	b := &controllerTest{clock: clocktesting.NewFakeClock(start), events: events.NewFakeRecorder(1000)}
	b.Controller = New(api, b.events, b.clock, scheduler.New(scheduler.Options{}))
	s := b.scheduler
	s.Advance(start)
	s.SetClusterSet(&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "set"}})
	s.SetBinding(&clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "set"}})
	for _, name := range []string{"a", "b"} {
		s.SetCluster(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{fleet.LabelClusterSet: "set"}}})
	}
	return b
}

func newPlacement(spec clusterv1beta1.PlacementSpec) *clusterv1beta1.Placement {
	return &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web", UID: "1", Generation: 1}, Spec: spec}
}

var web = scheduler.Key{Namespace: "team-a", Name: "web"}

func (b *controllerTest) reconcile(t *testing.T) ctrl.Result {
	t.Helper()
	result, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: web})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// selected is what the decisions say.
func (b *controllerTest) selected(t *testing.T) (clusters []string) {
	t.Helper()
	existing, _, err := decisionsOf(t.Context(), b.client, web)
	if err != nil {
		t.Fatal(err)
	}
	for _, decision := range existing {
		for _, d := range decision.Status.Decisions {
			clusters = append(clusters, d.ClusterName)
		}
	}
	return clusters
}

// recordedEvents are the events so far.
func (b *controllerTest) recordedEvents() (all []string) {
	for {
		select {
		case event := <-b.events.Events:
			all = append(all, event)
		default:
			return all
		}
	}
}

// PL-26 PL-27: a placement that becomes misconfigured keeps its decisions, says so, and is not retried.
func TestMisconfiguredPlacementKeepsDecisions(t *testing.T) {
	t.Parallel()
	p := newPlacement(clusterv1beta1.PlacementSpec{})
	b := newControllerTest(t, interceptor.Funcs{}, p)
	b.scheduler.SetPlacement(p.DeepCopy())
	b.reconcile(t)
	if diff := cmp.Diff([]string{"a", "b"}, b.selected(t)); diff != "" {
		t.Fatalf("decisions (-want +got):\n%s", diff)
	}
	if err := b.client.Get(t.Context(), web, p); err != nil {
		t.Fatal(err)
	}
	p.Generation = 2
	p.Spec.Tolerations = []clusterv1beta1.Toleration{{Operator: "Nonsense"}}
	if err := b.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	b.scheduler.SetPlacement(p.DeepCopy())
	if got := b.reconcile(t); !got.IsZero() {
		t.Errorf("it is tried again: %+v", got)
	}
	if diff := cmp.Diff([]string{"a", "b"}, b.selected(t)); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	if err := b.client.Get(t.Context(), web, p); err != nil {
		t.Fatal(err)
	}
	if !meta.IsStatusConditionTrue(p.Status.Conditions, fleet.ConditionPlacementMisconfigured) || p.Status.NumberOfSelectedClusters != 2 ||
		len(p.Status.DecisionGroups) != 1 {
		t.Errorf("status %+v", p.Status)
	}
}

// PL-22 PL-26: a placement that keeps its decisions gives up clusters that its namespace may not select any more, in one write. The
// others keep their reasons.
func TestLostClustersAreGivenUp(t *testing.T) {
	t.Parallel()
	member := func(name, set string) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelClusterSet: set}}}
	}
	for what, spec := range map[string]clusterv1beta1.PlacementSpec{
		"misconfigured": {Tolerations: []clusterv1beta1.Toleration{{Operator: "Nonsense"}}},
		"pending":       withCEL(0).Spec,
	} {
		for event, happen := range map[string]func(*scheduler.Scheduler) []scheduler.Key{
			"unbound": func(s *scheduler.Scheduler) []scheduler.Key {
				return s.DeleteBinding(scheduler.Key{Namespace: "team-a", Name: "other"})
			},
			"moved":   func(s *scheduler.Scheduler) []scheduler.Key { return s.SetCluster(member("b", "elsewhere")) },
			"deleted": func(s *scheduler.Scheduler) []scheduler.Key { return s.DeleteCluster("b") },
		} {
			t.Run(what+"/"+event, func(t *testing.T) {
				t.Parallel()
				writes := 0 // of decisions
				b := newControllerTest(t, interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, sub string,
					o client.Object, opts ...client.SubResourceUpdateOption) error {
					if _, ok := o.(*clusterv1beta1.PlacementDecision); ok {
						writes++
					}
					return c.SubResource(sub).Update(ctx, o, opts...)
				}})
				b.scheduler.SetClusterSet(&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
				b.scheduler.SetBinding(&clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "other"}})
				b.scheduler.SetCluster(member("b", "other"))
				b.schedulePlacement(t, clusterv1beta1.PlacementSpec{})
				decided := b.decision(t, "web-decision-1").Status.Decisions
				p := &clusterv1beta1.Placement{}
				if err := b.client.Get(t.Context(), web, p); err != nil {
					t.Fatal(err)
				}
				p.Spec = spec
				if err := b.client.Update(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				b.scheduler.SetPlacement(p.DeepCopy())
				writes = 0
				b.reconcile(t)
				b.wantDecision(t, "web-decision-1", "a", "b")
				if waiting := happen(b.scheduler); len(waiting) != 1 || writes > 0 {
					t.Errorf("%v are waiting, after %d writes", waiting, writes)
				}
				b.reconcile(t)
				b.reconcile(t)
				b.wantDecision(t, "web-decision-1", "a")
				if diff := cmp.Diff(decided[:1], b.decision(t, "web-decision-1").Status.Decisions); diff != "" || writes != 1 {
					t.Errorf("after %d writes, decisions (-want +got):\n%s", writes, diff)
				}
				if err := b.client.Get(t.Context(), web, p); err != nil || p.Status.NumberOfSelectedClusters != 1 {
					t.Errorf("%v, status %+v", err, p.Status)
				}
			})
		}
	}
}

// PL-17: no status is written for a placement that the scheduler does not know yet, or of which it has a former spec.
func TestStatusIsOfTheSpecDecidedBy(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*clusterv1beta1.Placement){
		"another spec":             func(p *clusterv1beta1.Placement) { p.Generation = 2 },
		"another one of that name": func(p *clusterv1beta1.Placement) { p.UID = "2" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlacement(clusterv1beta1.PlacementSpec{})
			changed := p.DeepCopy()
			changed.Spec.NumberOfClusters = ptr.To[int32](1)
			change(changed)
			b := newControllerTest(t, interceptor.Funcs{}, changed)
			b.scheduler.SetPlacement(p.DeepCopy())
			if got := b.reconcile(t); !got.IsZero() || len(b.selected(t)) > 0 {
				t.Errorf("%+v, selected %v", got, b.selected(t))
			}
			if err := b.client.Get(t.Context(), web, p); err != nil || len(p.Status.Conditions) > 0 {
				t.Errorf("status %+v, %v", p.Status, err)
			}
			if waiting := b.scheduler.SetPlacement(changed); len(waiting) != 1 {
				t.Errorf("%v are waiting", waiting)
			}
			b.reconcile(t)
			if len(b.selected(t)) != 1 {
				t.Errorf("selected %v", b.selected(t))
			}
		})
	}
}

// PL-12 PL-20 PL-27 P4: a score that expires causes one reconcile, when it expires, and a warning.
func TestExpiredScoreIsNotRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testExpiredScore)
}

// newScoredPlacement selects the one cluster with the best score of AddOnPlacementScores usage.
func newScoredPlacement() *clusterv1beta1.Placement {
	return newPlacement(clusterv1beta1.PlacementSpec{NumberOfClusters: ptr.To[int32](1),
		PrioritizerPolicy: clusterv1beta1.PrioritizerPolicy{Configurations: []clusterv1beta1.PrioritizerConfig{{
			Weight: 1, ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeAddOn,
				AddOn: &clusterv1beta1.AddOnScore{ResourceName: "usage", ScoreName: "cpu"}},
		}}}})
}

func testExpiredScore(t *testing.T) {
	p := newScoredPlacement()
	b := newControllerTest(t, interceptor.Funcs{}, p)
	until := metav1.NewTime(start.Add(time.Minute))
	score := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "usage"}}
	score.Status.Scores, score.Status.ValidUntil = []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "cpu", Value: 100}}, &until
	b.scheduler.SetScore(score)
	b.scheduler.SetPlacement(p.DeepCopy())
	if got := b.reconcile(t); !got.IsZero() || cmp.Diff([]string{"b"}, b.selected(t)) != "" {
		t.Errorf("again %+v, decisions %v", got, b.selected(t))
	}
	b.recordedEvents()

	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	if err := b.runTimer(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if next := b.scheduler.NextAdvance(); !next.Equal(until.Time) || q.Len() > 0 {
		t.Fatalf("time matters next at %s, %d are waiting", next, q.Len())
	}
	synctest.Wait()
	b.clock.Step(time.Minute - time.Second)
	synctest.Wait()
	if q.Len() > 0 {
		t.Error("it is reconciled while the score is valid")
	}
	b.clock.Step(time.Second)
	due, _ := q.Get()
	if due.NamespacedName != web {
		t.Errorf("%s is due", due)
	}
	q.Done(due)
	if got := b.reconcile(t); !got.IsZero() {
		t.Errorf("it is tried again: %+v", got)
	}
	if next := b.scheduler.NextAdvance(); !next.IsZero() {
		t.Errorf("time matters again at %s", next)
	}
}

// PL-27: a conflict with another writer is no error, but causes a retry, with growing delays.
func TestConflictIsRetried(t *testing.T) {
	t.Parallel()
	p := newPlacement(clusterv1beta1.PlacementSpec{})
	for _, wrong := range []error{
		apierrors.NewConflict(schema.GroupResource{}, "web-decision-1", errors.New("behind")),
		apierrors.NewAlreadyExists(schema.GroupResource{}, "web-decision-1"),
	} {
		b := newControllerTest(t, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object,
			...client.CreateOption) error {
			return wrong
		}}, p.DeepCopy())
		b.scheduler.SetPlacement(p.DeepCopy())
		for _, pause := range []time.Duration{minRetryDelay, 2 * minRetryDelay, 4 * minRetryDelay} {
			if got := b.reconcile(t); got.RequeueAfter != pause {
				t.Errorf("after %v: %+v, want %s", wrong, got, pause)
			}
		}
		if said := b.recordedEvents(); len(said) > 0 {
			t.Errorf("it records events of what is not written: %q", said)
		}
	}
}

// PL-27: the delay of retries is reset when the placement is deleted, or another writer decides for it.
func TestRetriesAreForgotten(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *controllerTest, *clusterv1beta1.Placement){
		"deleted": func(t *testing.T, b *controllerTest, p *clusterv1beta1.Placement) {
			if err := b.client.Delete(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			b.scheduler.DeletePlacement(web)
		},
		"disabled": func(_ *testing.T, b *controllerTest, p *clusterv1beta1.Placement) {
			p.Annotations = map[string]string{fleet.AnnotationSchedulingDisable: "true"}
			b.scheduler.SetPlacement(p.DeepCopy())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlacement(clusterv1beta1.PlacementSpec{})
			funcs := interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				return apierrors.NewAlreadyExists(schema.GroupResource{}, "web-decision-1")
			}}
			b := newControllerTest(t, funcs, p.DeepCopy())
			b.scheduler.SetPlacement(p.DeepCopy())
			b.reconcile(t)
			if n := b.retries.NumRequeues(ctrl.Request{NamespacedName: web}); n != 1 {
				t.Fatalf("it is tried again %d times", n)
			}
			end(t, b, p)
			b.reconcile(t)
			if n := b.retries.NumRequeues(ctrl.Request{NamespacedName: web}); n != 0 {
				t.Errorf("%d retries are remembered", n)
			}
		})
	}
}

// PL-24
func TestPluginMetrics(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(start)
	timer := timePlugins(clk)
	done := timer(scheduler.PluginFilter, "of this test")
	clk.Step(time.Second)
	done()
	timer(scheduler.PluginCEL, "")()
	if got := testutil.CollectAndCount(celSeconds); got != 1 {
		t.Errorf("%d metrics of CEL", got)
	}
	if !pluginSeconds.DeleteLabelValues("Filter", "of this test") {
		t.Error("the filter is not measured")
	}
}

// PL-22: expiries are noticed soon after a machine was suspended, although its timers did not run.
func TestTimeAfterSuspension(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newControllerTest(t, interceptor.Funcs{})
		b.Controller.clock = clock.RealClock{}
		began := time.Now()
		score := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "usage"}}
		score.Status.Scores = []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "cpu", Value: 100}}
		score.Status.ValidUntil = ptr.To(metav1.NewTime(start.Add(24 * time.Hour)))
		b.scheduler.SetScore(score)
		b.scheduler.SetPlacement(newScoredPlacement())
		b.scheduler.Schedule(web)
		if b.scheduler.NextAdvance().IsZero() {
			t.Fatal("time does not matter")
		}
		if !b.wait(t.Context(), b.scheduler.NextAdvance(), nil) || time.Since(began) > maxWait {
			t.Errorf("it looked again after %s", time.Since(began))
		}
	})
}
