// Package observe reads the state of applied objects when it changes, as far as it is to be reported to the hub.
//
// The tracker's watches of metadata notify of changes of objects. Only then, and only if an owner has a query about it, is
// the whole object read, and of it only the answers are kept: memory grows with what is reported. A few changes after a quiet
// time are read and reported at once, what changes over and over at intervals.
package observe

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
)

// The wait before an object that could not be read is tried again doubles from the first to the last.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = time.Minute
)

// maxReadFailures is how often an object may be unreadable in a row until its owners are notified.
const maxReadFailures = 3

// readers is how many objects are read at once.
const readers = 4

// Options configure an Observer.
type Options struct {
	// MaxJSONRawLength is the most bytes of a value of type JsonRaw.
	MaxJSONRawLength int
	Clock            clock.WithTicker
}

// Observer answers the queries of owners about objects.
type Observer struct {
	Options
	objects   dynamic.Interface
	tracked   *tracker.Tracker
	evaluator *conditions.Evaluator
	// toRead are objects, toCall owners.
	toRead workqueue.TypedRateLimitingInterface[tracker.Object]
	toCall workqueue.TypedDelayingInterface[string]

	mu       sync.Mutex
	observed map[tracker.Object]*observed
	owners   map[string]*pace
	listener func(owner string)
}

// observed is an object that owners have queries about.
type observed struct {
	pace    *pace
	version string // the least resource version that is worth reading
	queries map[string]*query
}

// query of one owner about one object, and the last answer.
type query struct {
	conditions.Query
	reading *conditions.Reading
	version string // of the object that was read
}

// New returns an Observer of what the tracker tracks.
func New(objects dynamic.Interface, tracked *tracker.Tracker, o Options) *Observer {
	observer := &Observer{
		Options: o, objects: objects, tracked: tracked, evaluator: conditions.NewEvaluator(),
		observed: map[tracker.Object]*observed{}, owners: map[string]*pace{},
		toRead: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[tracker.Object](firstRetry, lastRetry),
			workqueue.TypedRateLimitingQueueConfig[tracker.Object]{Clock: o.Clock},
		),
		toCall: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Clock: o.Clock}),
	}
	tracked.ListenToChanges(observer.changed)
	return observer
}

// Listen has f called with an owner when it is to be reconciled, because one of its readings has changed.
// It is called once, before the Observer starts.
func (o *Observer) Listen(f func(owner string)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listener = f
}

// changed is called by the tracker. All that was read of an object before it was restored is out of date, whatever its version.
func (o *Observer) changed(object tracker.Object, version string, restored bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	about := o.observed[object]
	if about == nil {
		return
	}
	if restored {
		for owner, registered := range about.queries { // a read in flight is not for these
			about.queries[owner] = &query{Query: registered.Query, reading: registered.reading}
		}
	}
	o.schedule(object, version)
}

// schedule has the object read, not older than the version. It needs the lock.
func (o *Observer) schedule(object tracker.Object, version string) {
	about := o.observed[object]
	about.version = version
	if after, queue := about.pace.next(o.Clock.Now()); queue {
		o.toRead.AddAfter(object, after)
	}
}

// Start reads objects and calls owners until the context ends.
func (o *Observer) Start(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		o.toRead.ShutDown()
		o.toCall.ShutDown()
	})
	defer stop()
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			for o.readNext(ctx) {
			}
		})
	}
	all.Go(func() {
		for o.callNext() {
		}
	})
	all.Wait()
	return nil
}

func (o *Observer) readNext(ctx context.Context) bool {
	object, shutdown := o.toRead.Get()
	if shutdown {
		return false
	}
	defer o.toRead.Done(object)
	if err := o.read(ctx, object); err != nil {
		log.FromContext(ctx).V(1).Info("An applied object cannot be read; that is tried again", "resource", object.Resource,
			"object", object.NamespacedName, "reason", err.Error())
		o.toRead.AddRateLimited(object)
		return true
	}
	o.toRead.Forget(object)
	return true
}

func (o *Observer) callNext() bool {
	owner, shutdown := o.toCall.Get()
	if shutdown {
		return false
	}
	defer o.toCall.Done(owner)
	if call := o.startCall(owner); call != nil {
		call(owner)
	}
	return true
}

// startCall is nil if the owner has gone meanwhile.
func (o *Observer) startCall(owner string) func(owner string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.owners[owner] == nil {
		return nil
	}
	o.owners[owner].start()
	return o.listener
}

// read reads the object and answers all queries about it.
func (o *Observer) read(ctx context.Context, object tracker.Object) error {
	queries, version := o.startRead(object)
	if len(queries) == 0 {
		return nil
	}
	// Not older than the change that was watched is new enough, and costs the API server no read of its store.
	live, err := o.objects.Resource(object.GroupVersionResource).Namespace(object.Namespace).Get(ctx, object.Name,
		metav1.GetOptions{ResourceVersion: version})
	for owner, registered := range queries {
		switch {
		case err == nil:
			o.notify(owner, o.answer(object, owner, registered, o.evaluator.Read(live, registered.Query, o.MaxJSONRawLength),
				live.GetResourceVersion()))
		case apierrors.IsNotFound(err):
			o.notify(owner, o.answer(object, owner, registered, o.keepEnded(owner, object, conditions.NotFound(registered.Query)), version))
		case o.toRead.NumRequeues(object) >= maxReadFailures:
			o.notify(owner, o.answer(object, owner, registered, o.keepEnded(owner, object, conditions.Unreadable(registered.Query, err)),
				version))
		}
	}
	return client.IgnoreNotFound(err)
}

// keepEnded has an answer without the object say, as the last one does, that the object has ended.
func (o *Observer) keepEnded(owner string, object tracker.Object, reading *conditions.Reading) *conditions.Reading {
	if last := o.Reading(owner, object); last != nil {
		reading.Ended = last.Ended
	}
	return reading
}

// startRead returns the queries about the object, and the least version that is worth reading.
func (o *Observer) startRead(object tracker.Object) (queries map[string]*query, version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	about := o.observed[object]
	if about == nil {
		return nil, ""
	}
	about.pace.start()
	queries = make(map[string]*query, len(about.queries))
	for owner, registered := range about.queries {
		queries[owner] = registered
	}
	return queries, about.version
}

// answer takes in a reading, unless the query or the reading is out of date, and reports whether it has changed.
func (o *Observer) answer(object tracker.Object, owner string, registered *query, reading *conditions.Reading,
	version string) (changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	about := o.observed[object]
	if about == nil || about.queries[owner] != registered || tracker.IsOlder(version, registered.version) {
		return false
	}
	changed = !equality.Semantic.DeepEqual(registered.reading, reading)
	registered.reading, registered.version = reading, version
	return changed
}

// notify has the owner called if a reading of its objects has changed.
func (o *Observer) notify(owner string, changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !changed || o.owners[owner] == nil {
		return
	}
	if after, queue := o.owners[owner].next(o.Clock.Now()); queue {
		o.toCall.AddAfter(owner, after)
	}
}
