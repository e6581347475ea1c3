package apply

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// A change of any object of a work requeues it at once. One of the object that a manifest fails with, or lacks, ends the backoff of the
// work at once, and others end it once in ten seconds. A reading requeues it and ends no backoff.
func TestBackoffOfFailingWork(t *testing.T) {
	t.Parallel()
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	objectNamed := func(name string) tracker.Object {
		return tracker.Object{GroupVersionResource: configMaps, NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
	}
	resultOf := func(name string, err error) manifestResult {
		return manifestResult{resolved: true, err: err, mapping: &meta.RESTMapping{Resource: configMaps},
			identity: manifest.Identity{Namespace: "default", Name: name}}
	}
	lacking := resultOf("lacking", errors.New("no namespace"))
	missing := tracker.Object{GroupVersionResource: namespaces, NamespacedName: types.NamespacedName{Name: "later"}}
	lacking.missing = &missing
	owner := fleet.AppliedManifestWorkName(hubHash, "a")
	type event = func(*Controller, workQueue, *clocktesting.FakeClock)
	change := func(object tracker.Object) event {
		return func(c *Controller, queue workQueue, _ *clocktesting.FakeClock) { c.objectChanged(queue, owner, object) }
	}
	sibling := change(objectNamed("good"))
	reading := func(c *Controller, queue workQueue, _ *clocktesting.FakeClock) { c.readingChanged(queue, owner) }
	after := func(passed time.Duration) event {
		return func(_ *Controller, _ workQueue, clock *clocktesting.FakeClock) { clock.Step(passed) }
	}
	failure := func(c *Controller, queue workQueue, _ *clocktesting.FakeClock) {
		queue.AddRateLimited(c.requestFor("a"))
	}
	for name, test := range map[string]struct {
		events   []event
		first    bool // there was no pass yet
		failures int  // that count for the backoff, after three
	}{
		"a sibling":                   {events: []event{sibling}},
		"a sibling again":             {events: []event{sibling, failure, sibling}, failures: 1},
		"a sibling too early":         {events: []event{sibling, failure, after(siblingInterval - 1), sibling}, failures: 1},
		"a sibling ten seconds later": {events: []event{sibling, failure, after(siblingInterval), sibling}},
		"a sibling after a reading":   {events: []event{reading, failure, sibling}},
		"a reading":                   {events: []event{reading}, failures: 3},
		"a reading again":             {events: []event{reading, failure, after(siblingInterval), reading}, failures: 4},
		"the object that fails":       {events: []event{change(objectNamed("bad"))}},
		"the object that fails again": {events: []event{change(objectNamed("bad")), failure, change(objectNamed("bad"))}},
		"the object that is lacking":  {events: []event{change(missing)}},
		"lacking, after a sibling":    {events: []event{sibling, failure, change(missing)}},
		"before any pass":             {events: []event{sibling}, first: true},
		"a reading before any pass":   {events: []event{reading}, first: true, failures: 3},
		"a sibling of a new work": {events: []event{sibling, failure, func(c *Controller, _ workQueue, _ *clocktesting.FakeClock) {
			c.siblings.forget("a")
		}, sibling}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
			queue := workqueue.NewTypedRateLimitingQueueWithConfig(retry.Limiter(),
				workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Clock: clocktesting.NewFakeClock(time.Unix(1000, 0))})
			defer queue.ShutDown()
			c := &Controller{Options: Options{Namespace: "c1", Clock: clock}, names: &appliedmanifestwork.Names{HubHash: hubHash},
				siblings: siblings{ended: map[string]time.Time{}}}
			if !test.first {
				c.lastResults.put("a", &workResult{results: []manifestResult{resultOf("good", nil), resultOf("bad", errors.New("refused")), lacking}})
			}
			for range 3 {
				queue.AddRateLimited(c.requestFor("a"))
			}
			for _, event := range test.events {
				event(c, queue, clock)
			}
			if got := queue.NumRequeues(c.requestFor("a")); got != test.failures || queue.Len() != 1 {
				t.Errorf("%d failures count, want %d; %d works are to be reconciled at once, want 1", got, test.failures, queue.Len())
			}
		})
	}
}
