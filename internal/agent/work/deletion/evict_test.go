package deletion

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/predecessor"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

type world struct {
	*evictor
	t            *testing.T
	hub, managed client.Client
	clock        *clocktesting.FakeClock
	name         string
}

// newWorld has an agent of ID agent in cluster1 of hub, and one AppliedManifestWork.
func newWorld(t *testing.T, grace time.Duration, amw *workv1.AppliedManifestWork, works ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), name: amw.Name}
	w.hub = fake.NewClientBuilder().WithScheme(scheme).WithObjects(works...).Build()
	w.managed = fake.NewClientBuilder().WithScheme(scheme).WithObjects(amw).WithStatusSubresource(amw).Build()
	onHub := func(_ context.Context, cluster string) (bool, error) {
		if cluster == "unknown" {
			return false, errors.New("who are you?")
		}
		return cluster == "cluster2", nil
	}
	w.evictor = newEvictor(w.hub, w.hub, w.managed, Options{Namespace: "cluster1", HubHash: "hub", AgentID: "agent", GracePeriod: grace,
		Clock: w.clock, Clusters: &predecessor.Clusters{Exists: onHub, Clock: w.clock}})
	return w
}

// reconcile reconciles, and returns the AppliedManifestWork, nil if it is gone, and when to reconcile again.
func (w *world) reconcile() (*workv1.AppliedManifestWork, time.Duration) {
	w.t.Helper()
	key := client.ObjectKey{Name: w.name}
	result, err := w.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil {
		w.t.Fatal(err)
	}
	amw := &workv1.AppliedManifestWork{}
	if err := w.managed.Get(w.t.Context(), key, amw); apierrors.IsNotFound(err) {
		return nil, 0
	} else if err != nil {
		w.t.Fatal(err)
	}
	return amw, result.RequeueAfter
}

func applied(hubHash, agentID, cluster string) *workv1.AppliedManifestWork {
	amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: hubHash + "-work"},
		Spec: workv1.AppliedManifestWorkSpec{HubHash: hubHash, AgentID: agentID, ManifestWorkName: "work"}}
	if cluster != "" {
		amw.Annotations = map[string]string{fleet.AnnotationClusterName: cluster}
	}
	return amw
}

func theWork() *workv1.ManifestWork {
	return &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "work"}}
}

// WK-15 KL-33: whose works are looked for, and which of them are missed.
func TestWhoIsEvicted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		amw    *workv1.AppliedManifestWork
		works  []client.Object
		evicts bool
	}{
		"its work is there":                           {applied("hub", "agent", "cluster1"), []client.Object{theWork()}, false},
		"its work is gone":                            {applied("hub", "agent", "cluster1"), nil, true},
		"of an agent that this one replaced":          {applied("hub", "older", "cluster1"), nil, true},
		"of an agent of the original":                 {applied("hub", "older", ""), nil, true},
		"of an agent of another cluster of the hub":   {applied("hub", "other", "cluster2"), nil, false},
		"of a cluster that may be on the hub":         {applied("hub", "other", "unknown"), nil, false},
		"of a cluster that has left the hub":          {applied("hub", "other", "cluster0"), nil, true},
		"its work is there, the cluster has left":     {applied("hub", "other", "cluster0"), []client.Object{theWork()}, false},
		"of this agent at a former hub":               {applied("former", "agent", "cluster1"), []client.Object{theWork()}, true},
		"of this agent at a former hub, original":     {applied("former", "agent", ""), nil, true},
		"of another agent of another hub":             {applied("former", "other", "cluster1"), nil, false},
		"of this agent as another cluster of the hub": {applied("hub", "agent", "cluster0"), []client.Object{}, true},
	} {
		w := newWorld(t, time.Hour, test.amw, test.works...)
		amw, again := w.reconcile()
		others := again == time.Hour && w.agent.OtherCluster(test.amw) != "" // it is checked again whether that has left
		if amw == nil || (amw.Status.EvictionStartTime != nil) != test.evicts || (again == time.Hour) != (test.evicts || others) {
			t.Errorf("%s: %+v, again after %s", name, amw, again)
		}
	}
}

// WK-15 KL-21: an eviction ends after the grace period, not before, and a work that returns calls it off.
func TestGracePeriod(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Hour, applied("hub", "agent", "cluster1"))
	w.reconcile()
	w.clock.Step(59 * time.Minute)
	if amw, again := w.reconcile(); amw == nil || again != time.Minute {
		t.Fatalf("after 59 minutes: %+v, again after %s", amw, again)
	}
	if err := w.hub.Create(t.Context(), theWork()); err != nil {
		t.Fatal(err)
	}
	if amw, again := w.reconcile(); amw.Status.EvictionStartTime != nil || again != 0 {
		t.Fatalf("with its work: %+v, again after %s", amw.Status, again)
	}
	if err := w.hub.Delete(t.Context(), theWork()); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(time.Minute)
	if amw, again := w.reconcile(); amw == nil || again != time.Hour {
		t.Fatalf("an eviction that was called off begins again: %+v, again after %s", amw, again)
	}
	w.clock.Step(time.Hour)
	if amw, _ := w.reconcile(); amw != nil {
		t.Fatalf("after the grace period: %+v", amw)
	}
}

// WK-15: a hub that does not answer for an hour has lost no work. An eviction does not start, and one that had begun does not end,
// before the hub says again what it has.
func TestHubGoneForAnHour(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after bool // whether the hub has the work
		left          bool // whether what was applied is still there at the end
	}{
		"the work is there all the time":        {true, true, true},
		"the work is gone when the hub is back": {true, false, true}, // for the grace period from now
		"the work was missed and comes back":    {false, true, true},
		"the work was missed and stays missing": {false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var works []client.Object
			if test.before {
				works = append(works, theWork())
			}
			w := newWorld(t, 30*time.Minute, applied("hub", "agent", "cluster1"), works...)
			w.reconcile()
			answering := w.evictor.hub
			w.evictor.hub = interceptor.NewClient(fake.NewClientBuilder().WithScheme(w.hub.Scheme()).Build(), interceptor.Funcs{
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					return apierrors.NewServiceUnavailable("the hub is gone")
				},
			})
			for range 4 {
				w.clock.Step(15 * time.Minute)
				if _, err := w.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: w.name}}); err == nil {
					t.Fatal("it takes silence for an answer")
				}
				amw := &workv1.AppliedManifestWork{}
				if err := w.managed.Get(t.Context(), client.ObjectKey{Name: w.name}, amw); err != nil ||
					(amw.Status.EvictionStartTime == nil) != test.before {
					t.Fatalf("while the hub is gone: %+v, %v", amw.Status, err)
				}
			}
			w.evictor.hub = answering
			switch {
			case test.before && !test.after:
				if err := w.hub.Delete(t.Context(), theWork()); err != nil {
					t.Fatal(err)
				}
			case !test.before && test.after:
				if err := w.hub.Create(t.Context(), theWork()); err != nil {
					t.Fatal(err)
				}
			}
			amw, again := w.reconcile()
			if (amw != nil) != test.left {
				t.Fatalf("when the hub is back: %+v", amw)
			}
			if amw != nil && (amw.Status.EvictionStartTime == nil) != test.after || test.left && !test.after && again != 30*time.Minute {
				t.Errorf("when the hub is back: %+v, again after %s", amw.Status, again)
			}
		})
	}
}

// WK-15: an agent that was stopped for a while, or whose hub does not answer, has a cache from before. What the hub has by now is not
// deleted, nor what it may have; who may not read goes by the cache.
func TestCacheFromBefore(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: workv1.GroupVersion.Group, Resource: "manifestworks"}
	for name, test := range map[string]struct {
		applied *workv1.AppliedManifestWork
		answer  error
		stays   bool
	}{
		"the work is back":           {applied("hub", "agent", "cluster1"), nil, true},
		"the hub does not answer":    {applied("hub", "agent", "cluster1"), errors.New("no route"), true},
		"the work is missing":        {applied("hub", "agent", "cluster1"), apierrors.NewNotFound(resource, "work"), false},
		"the agent may not ask":      {applied("hub", "agent", "cluster1"), apierrors.NewForbidden(resource, "work", nil), false},
		"it was for a hub of before": {applied("former", "agent", "cluster1"), errors.New("it is not asked"), false},
		"a proxy knows no works":     {applied("hub", "agent", "cluster1"), ofProxy(http.StatusNotFound), true},
		"a proxy forbids":            {applied("hub", "agent", "cluster1"), ofProxy(http.StatusForbidden), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, time.Hour, test.applied)
			w.reconcile()
			w.live = interceptor.NewClient(fake.NewClientBuilder().WithScheme(w.hub.Scheme()).Build(), interceptor.Funcs{
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					return test.answer
				},
			})
			w.clock.Step(time.Hour)
			key := client.ObjectKey{Name: w.name}
			result, err := w.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			if again := err != nil || result.RequeueAfter > 0; again != test.stays {
				t.Errorf("it is looked at again: %t (%v)", again, err)
			}
			left := w.managed.Get(t.Context(), key, &workv1.AppliedManifestWork{})
			if client.IgnoreNotFound(left) != nil || apierrors.IsNotFound(left) == test.stays {
				t.Errorf("what the work applied: %v", left)
			}
		})
	}
}

// ofProxy is what a proxy in front of the hub answers, in words of its own.
func ofProxy(code int) error {
	return apierrors.NewGenericServerResponse(code, "get", schema.GroupResource{}, "work", "<html>", 0, true)
}

// WK-15 O14: a work of a source that has not said which works it has is not missed, however long, and its eviction does not end. Works of
// no known source, and of former hubs, are missed as always.
func TestSourceIsAway(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hubHash, source string
		away            bool
		gone            bool
	}{
		"its source is away":                 {"hub", "b", true, false},
		"its source has answered":            {"hub", "b", false, true},
		"its source is not known":            {"hub", "", true, true},
		"it was for a hub of before":         {"former", "b", true, true},
		"its source is a, which is not away": {"hub", "a", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			amw := applied(test.hubHash, "agent", "cluster1")
			if test.source != "" {
				amw.Annotations[fleet.AnnotationWorkSource] = test.source
			}
			w := newWorld(t, time.Hour, amw)
			w.HasAnswered = func(source string, patience time.Duration) (counts, itself bool) {
				answered := source == "a" || !test.away || patience != time.Hour
				return answered, answered
			}
			began, _ := w.reconcile()
			w.clock.Step(time.Hour)
			left, again := w.reconcile()
			if (began.Status.EvictionStartTime != nil) != test.gone || (left == nil) != test.gone {
				t.Errorf("it began with %+v, and ended with %+v", began.Status, left)
			}
			if !test.gone && again != predecessor.PollInterval {
				t.Errorf("it is looked at again after %s", again)
			}
		})
	}
}

// WK-16: what was complete of a work that its source says is gone is forgotten, and of no other: it may come back with the same UID, and is
// applied then. A work that the cache lacks yet is not missed.
func TestCompletionIsForgotten(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hubHash string
		works   []client.Object
		// counts and itself are whether the source counts as having answered, and whether it has.
		counts, itself bool
		behind         bool // the cache lacks the work
		missed         bool // since before
		forgotten      bool
		evicts         bool
	}{
		"it is gone":            {hubHash: "hub", counts: true, itself: true, forgotten: true, evicts: true},
		"after a silence":       {hubHash: "hub", counts: true, itself: true, missed: true, forgotten: true, evicts: true},
		"it is there":           {hubHash: "hub", works: []client.Object{theWork()}, counts: true, itself: true},
		"the cache is behind":   {hubHash: "hub", works: []client.Object{theWork()}, counts: true, itself: true, behind: true},
		"its source is away":    {hubHash: "hub"},
		"its source was silent": {hubHash: "hub", counts: true, evicts: true},
		"it is of another hub":  {hubHash: "former", counts: true, itself: true, evicts: true},
	} {
		amw := applied(test.hubHash, "agent", "cluster1")
		amw.Annotations[fleet.AnnotationWorkSource], amw.Annotations[fleet.AnnotationCompletion] = "b", "complete"
		if test.missed {
			amw.Status.EvictionStartTime = &metav1.Time{Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		}
		w := newWorld(t, time.Hour, amw, test.works...)
		if test.behind {
			w.evictor.hub = fake.NewClientBuilder().WithScheme(w.hub.Scheme()).Build()
		}
		w.HasAnswered = func(string, time.Duration) (counts, itself bool) { return test.counts, test.itself }
		left, _ := w.reconcile()
		if left == nil || (left.Annotations[fleet.AnnotationCompletion] == "") != test.forgotten ||
			(left.Status.EvictionStartTime != nil) != test.evicts {
			t.Errorf("%s: %+v", name, left)
		}
	}
}

// WK-15: 100 years are never, and call off what began under another grace period.
func TestNever(t *testing.T) {
	t.Parallel()
	amw := applied("hub", "agent", "cluster1")
	amw.Status.EvictionStartTime = &metav1.Time{Time: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)}
	if got, again := newWorld(t, never, amw).reconcile(); got == nil || got.Status.EvictionStartTime != nil || again != 0 {
		t.Errorf("%+v, again after %s", got, again)
	}
}
