package observe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
)

var (
	things = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
	thing  = tracker.Object{GroupVersionResource: things, NamespacedName: types.NamespacedName{Namespace: "default", Name: "thing"}}
	level  = conditions.Query{FeedbackRules: []workv1.FeedbackRule{{Type: workv1.JSONPathsType,
		JSONPaths: []workv1.JSONPath{{Name: "level", Path: ".status.level"}}}}}
)

func at(version string, level int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Thing",
		"metadata": map[string]any{"namespace": "default", "name": "thing", "resourceVersion": version},
		"status":   map[string]any{"level": level},
	}}
}

// cluster is an observer of a cluster with one thing, at a time of the test's own.
type cluster struct {
	*Observer
	clock *clocktesting.FakeClock

	reads atomic.Int32
	mu    sync.Mutex
	thing *unstructured.Unstructured
	err   error
	calls []string
}

// called is how owners were called.
func (c *cluster) called() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.calls, ",")
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := prepareCluster(t)
	c.start(t)
	return c
}

// prepareCluster returns a cluster whose observer does not work yet.
func prepareCluster(t *testing.T) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &cluster{clock: clocktesting.NewFakeClock(time.Unix(0, 0)), thing: at("1", 1)}
	objects := dynamicfake.NewSimpleDynamicClient(scheme)
	objects.PrependReactor("get", "things", func(kubetesting.Action) (bool, runtime.Object, error) {
		c.reads.Add(1)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err != nil {
			return true, nil, c.err
		}
		return true, c.thing, nil
	})
	c.Observer = New(objects, tracker.New(t.Context(), metadatafake.NewSimpleMetadataClient(scheme)),
		Options{MaxJSONRawLength: 1024, Clock: c.clock})
	c.Listen(func(owner string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls = append(c.calls, owner)
	})
	return c
}

func (c *cluster) start(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running errgroup.Group
	running.Go(func() error { return c.Start(ctx) })
	t.Cleanup(func() {
		stop()
		if err := running.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// set changes the thing, and the watch says so.
func (c *cluster) set(live *unstructured.Unstructured, err error) {
	c.mu.Lock()
	c.thing, c.err = live, err
	c.mu.Unlock()
	c.changed(thing, "", false)
}

func (c *cluster) await(t *testing.T, what string, check func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return check(), nil
	})
	if err != nil {
		t.Fatalf("%s: %d reads, calls %s", what, c.reads.Load(), c.called())
	}
}

func (c *cluster) level() string {
	reading := c.Reading("a", thing)
	if reading == nil || len(reading.Values) == 0 {
		return ""
	}
	return fmt.Sprint(*reading.Values[0].Value.Integer)
}

func (c *cluster) awaitLevel(t *testing.T, want string) {
	t.Helper()
	c.await(t, "level "+want, func() bool { return c.level() == want })
}

// WK-18, gap W2: an object is read when it has changed, and its owner is called when that is news to it.
func TestReadsOnChange(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Observe("a", thing, level, at("1", 1))
	if got := c.level(); got != "1" || c.reads.Load() != 0 {
		t.Errorf("level %q after %d reads, want that of the object that was given", got, c.reads.Load())
	}
	c.Observe("b", thing, conditions.Query{Health: true}, nil)
	c.await(t, "an object that was not given is read", func() bool { return c.Reading("b", thing) != nil && c.reads.Load() == 1 })
	c.await(t, "only the one who knew nothing is called", func() bool { return c.called() == "b" })
	c.set(at("2", 2), nil)
	c.awaitLevel(t, "2")
	c.await(t, "the owner whose answer changed is called", func() bool { return c.called() == "b,a" })
	c.set(at("3", 2), nil)
	c.await(t, "the object is read again", func() bool { return c.reads.Load() == 3 })
	c.Forget("a", thing)
	c.Forget("b", thing)
	c.changed(thing, "4", false)
	if len(c.observed) != 0 || c.toRead.Len() != 0 || c.called() != "b,a" {
		t.Errorf("%d objects are observed, %d queued, calls %v", len(c.observed), c.toRead.Len(), c.called())
	}
}

// Bursts: after some changes in a row, one reading stands for many.
func TestBursts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Observe("a", thing, level, at("0", 0))
	for i := range burst {
		c.set(at(fmt.Sprint(i+1), int64(i+1)), nil)
		c.await(t, "a change is read at once", func() bool { return int(c.reads.Load()) == i+1 })
	}
	for i := range 100 {
		c.set(at(fmt.Sprint(i+100), int64(i+100)), nil)
	}
	if c.reads.Load() != burst {
		t.Errorf("%d reads, want %d until time passes", c.reads.Load(), burst)
	}
	c.clock.Step(interval)
	c.awaitLevel(t, "199")
	if c.reads.Load() != burst+1 {
		t.Errorf("%d reads, want %d", c.reads.Load(), burst+1)
	}
}

// lateReads and lateCalls are queues that are late, as those of a busy machine are.
type (
	lateReads struct {
		workqueue.TypedRateLimitingInterface[tracker.Object]
	}
	lateCalls struct {
		workqueue.TypedDelayingInterface[string]
	}
)

const lateness = interval / 10

func (q lateReads) AddAfter(object tracker.Object, after time.Duration) {
	q.TypedRateLimitingInterface.AddAfter(object, after+lateness)
}

func (q lateCalls) AddAfter(owner string, after time.Duration) {
	q.TypedDelayingInterface.AddAfter(owner, after+lateness)
}

// Bursts: the last of many changes is read and notified, even if others come while a queue is late. A queue that is about to give
// out an entry takes no later one of the same object.
func TestLateQueues(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		happen func(c *cluster)
		done   func(c *cluster) int
	}{
		"reading": {
			happen: func(c *cluster) { c.changed(thing, "", false) },
			done:   func(c *cluster) int { return int(c.reads.Load()) },
		},
		"calling": {
			happen: func(c *cluster) { c.notify("a", true) },
			done:   func(c *cluster) int { return strings.Count(c.called(), "a") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := prepareCluster(t)
			c.toRead, c.toCall = lateReads{c.toRead}, lateCalls{c.toCall}
			c.start(t)
			c.Observe("a", thing, level, at("1", 1))
			happensAfter := func(d time.Duration) (done int) {
				c.clock.Step(d)
				done = test.done(c)
				test.happen(c)
				return done
			}
			isDone := func(done int) {
				t.Helper()
				c.await(t, "it is done in the end", func() bool {
					c.clock.Step(lateness)
					return test.done(c) > done
				})
			}
			for pause := time.Duration(0); pause <= interval; pause += lateness / 2 {
				for range burst {
					isDone(happensAfter(0))
				}
				happensAfter(0)
				isDone(happensAfter(pause))
				isDone(happensAfter(0))
			}
		})
	}
}

// An answer to an old query, or from an old object, is not taken for a new one.
func TestOldAnswers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Observe("a", thing, level, at("5", 5))
	c.Observe("a", thing, level, at("4", 4))
	if got := c.level(); got != "5" {
		t.Errorf("level %q of an older object", got)
	}
	other := conditions.Query{FeedbackRules: []workv1.FeedbackRule{{Type: workv1.JSONPathsType,
		JSONPaths: []workv1.JSONPath{{Name: "other", Path: ".status.level"}}}}}
	registered := c.register("a", thing, level)
	c.Observe("a", thing, other, at("6", 6))
	if c.answer(thing, "a", registered, &conditions.Reading{}, "7") || c.Reading("a", thing).Values[0].Name != "other" {
		t.Error("the answer to a question that is not asked any more was taken")
	}
}

// Gap W2: what changes between the write of an object and the first query about it, when there is no listener, is read.
func TestChangeBeforeTheQuestion(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	c.tracked.Track("a", thing)
	written := at("10", 10)
	c.set(at("11", 11), nil)
	c.tracked.Saw(thing, at("11", 11))
	c.start(t)
	c.Observe("a", thing, level, written)
	c.awaitLevel(t, "11")
	c.await(t, "the owner is called", func() bool { return c.called() == "a" })
	c.Observe("a", thing, level, at("11", 11))
	c.Observe("a", thing, level, at("12", 12))
	if n := c.toRead.Len(); n != 0 || c.reads.Load() != 1 {
		t.Errorf("%d reads, and %d queued, of what the owner knows", c.reads.Load(), n)
	}
}

// What was read of an object before its cluster was restored from a backup is out of date, although its version is higher.
func TestRestored(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Observe("a", thing, level, at("50", 50))
	before := c.register("a", thing, level)
	c.mu.Lock()
	c.thing = at("30", 30)
	c.mu.Unlock()
	c.changed(thing, "30", true)
	c.awaitLevel(t, "30")
	c.await(t, "the owner is called", func() bool { return c.called() == "a" })
	if c.answer(thing, "a", before, &conditions.Reading{}, "51") || c.level() != "30" {
		t.Error("a reading from before was taken")
	}
	c.mu.Lock()
	c.thing = at("31", 31)
	c.mu.Unlock()
	c.changed(thing, "31", false)
	c.awaitLevel(t, "31")
}

// WK-17: that a Job has ended is known also when it cannot be read any more, or is gone.
func TestEndedAndGone(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"gone": apierrors.NewNotFound(things.GroupResource(), "thing"), "unreadable": errors.New("no route"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			job := at("1", 1)
			job.SetGroupVersionKind(schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"})
			job.SetUID("job")
			job.Object["status"] = map[string]any{"level": int64(1), "conditions": []any{map[string]any{"type": "Complete", "status": "True"}}}
			c.Observe("a", thing, level, job)
			c.set(nil, err)
			c.await(t, "the answer without the object", func() bool {
				c.clock.Step(lastRetry)
				return strings.Contains(c.Reading("a", thing).Failure, "the object ")
			})
			if ended := c.Reading("a", thing).Ended; ended != "job" {
				t.Errorf("%q has ended", ended)
			}
		})
	}
}

// What has gone is said at once; what cannot be read only if it stays so, for it is tried again.
func TestTroubles(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	q := level
	q.Health = true
	c.Observe("a", thing, q, at("1", 1))
	c.set(nil, fmt.Errorf("no route"))
	again := func(check func() bool) func() bool {
		return func() bool {
			c.clock.Step(lastRetry)
			return check()
		}
	}
	c.await(t, "it is tried again", again(func() bool {
		got := c.level()
		if reads := c.reads.Load(); reads <= maxReadFailures && got != "1" {
			t.Errorf("level %q after %d failures", got, reads)
		}
		return c.reads.Load() >= maxReadFailures
	}))
	c.await(t, "the owner is told", again(func() bool {
		return strings.Contains(c.Reading("a", thing).Failure, "the object cannot be read: no route")
	}))
	c.set(nil, apierrors.NewNotFound(things.GroupResource(), "thing"))
	c.await(t, "the end is told", again(func() bool { return strings.Contains(c.Reading("a", thing).Failure, "does not exist") }))
	if !meta.IsStatusConditionTrue(c.Reading("a", thing).Conditions, "Progressing") {
		t.Errorf("conditions %+v", c.Reading("a", thing).Conditions)
	}
	c.set(at("9", 9), nil)
	c.await(t, "its return is told", again(func() bool { return c.level() == "9" }))
}
