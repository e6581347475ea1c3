package brokerapi

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/agent/registration/monitor"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// slowHub makes a pause before each event of its answer to a resync request, and may not acknowledge the request.
type slowHub struct {
	pause        time.Duration
	silent       bool
	dataType     cloudevents.DataType
	objects      []client.Object
	requests     atomic.Int32
	subscription atomic.Pointer[slowSubscription]
}

// Publish implements Broker.
func (h *slowHub) Publish(ctx context.Context, request *cloudevents.Event) error {
	known := cloudevents.ResourceVersions{}
	if err := request.ReadData(&known); err != nil {
		return err
	}
	h.requests.Add(1)
	go h.answer(h.subscription.Load(), known.Versions[len(known.Versions)-1].ResourceID)
	if h.silent {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (h *slowHub) answer(to *slowSubscription, mark string) {
	events := []*cloudevents.Event{}
	for _, o := range h.objects {
		events = append(events, encode(h.dataType, cloudevents.ResyncResponse, o))
	}
	for _, event := range append(events, gone(h.dataType, mark)) {
		select {
		case <-time.After(h.pause):
		case <-to.ctx.Done():
			return
		}
		select {
		case to.events <- event:
		case <-to.ctx.Done():
			return
		}
	}
}

// Subscribe implements Broker.
func (h *slowHub) Subscribe(ctx context.Context, _ string, _ cloudevents.DataType) (cloudevents.Subscription, error) {
	s := &slowSubscription{events: make(chan *cloudevents.Event)}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	h.subscription.Store(s)
	return s, nil
}

type slowSubscription struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	events chan *cloudevents.Event
}

func (s *slowSubscription) Receive() (*cloudevents.Event, error) {
	select {
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	case event := <-s.events:
		return event, nil
	}
}

func (s *slowSubscription) End(reason error) { s.cancel(reason) }

func (s *slowSubscription) Close() { s.cancel(nil) }

// sources answer to resync requests, each with its works and then the mark, unless they are away.
type sources struct {
	slowHub
	mu    sync.Mutex
	works map[string]*workv1.ManifestWork // by source
	away  map[string]bool
}

// Publish implements Broker.
func (s *sources) Publish(_ context.Context, request *cloudevents.Event) error {
	known := cloudevents.ResourceVersions{}
	if err := request.ReadData(&known); err != nil {
		return err
	}
	s.requests.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for source, work := range s.works {
		if s.away[source] {
			continue
		}
		events := []*cloudevents.Event{encode(cloudevents.ManifestBundles, cloudevents.ResyncResponse, work),
			gone(cloudevents.ManifestBundles, known.Versions[len(known.Versions)-1].ResourceID)}
		go s.send(s.subscription.Load(), source, events)
	}
	return nil
}

func (s *sources) send(to *slowSubscription, source string, events []*cloudevents.Event) {
	for _, event := range events {
		event.Extensions[cloudevents.ExtensionOriginalSource] = source
		select {
		case to.events <- event:
		case <-to.ctx.Done():
			return
		}
	}
}

func (s *sources) comesBack(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.away, source)
}

// CE-05 O14: the answer of one source says nothing of the works of another, which is asked again, after ever longer pauses, as long as its
// answer counts. One without works, which does not answer, counts as having answered when it has been silent for long, under one
// subscription. Of each work is known who sent it.
func TestSources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		hub := &sources{works: map[string]*workv1.ManifestWork{}, away: map[string]bool{"b": true}}
		for _, name := range []string{"a", "b"} {
			hub.works[name] = newWork(name)
			hub.works[name].UID = types.UID(name)
			hub.works[name].Annotations = map[string]string{fleet.AnnotationWorkSource: "forged"}
		}
		api := New(ctx, Options{Broker: hub, Cluster: testCluster, Source: testCluster, NamesSources: true, Clock: clock.RealClock{}})
		works := api.collections[resourceWorks]
		if err := works.await(ctx); err != nil {
			t.Fatal(err)
		}
		const patience = time.Hour
		begin := time.Now()
		expect := func(when string, at time.Duration, b, withoutWorks bool, requests int32) {
			t.Helper()
			<-time.After(time.Until(begin.Add(at)))
			synctest.Wait()
			made := hub.requests.Load()
			ofA, itselfA := api.HasAnswered("a", patience)
			ofB, itselfB := api.HasAnswered("b", patience)
			ofC, itselfC := api.HasAnswered("without works", patience)
			if !ofA || ofB != b || ofC != withoutWorks || made != requests {
				t.Errorf("%s: a has answered: %t, b: %t, the one without works: %t, after %d requests, want %d", when, ofA, ofB, ofC, made, requests)
			}
			if !itselfA || itselfB != b || itselfC {
				t.Errorf("%s: itself a has answered: %t, b: %t, the one without works: %t", when, itselfA, itselfB, itselfC)
			}
			synctest.Wait()
		}
		expect("b is away", 0, false, false, 1)
		expect("asked again at once", 0, false, false, 2)
		expect("not too often", 0, false, false, 2)
		hub.comesBack("b")
		expect("b is back", askAgainPause, true, false, 3)
		expect("after the first pause once more", 2*askAgainPause, true, false, 3)
		expect("after a pause twice as long", 3*askAgainPause, true, false, 4)
		expect("silent until now", patience-time.Second, true, false, 5)
		expect("silent for long", patience, true, true, 6)
		expect("nobody is asked any more", 2*patience, true, true, 6)
		hub.subscription.Load().End(errors.New("the connection is lost"))
		<-time.After(2 * firstResubscription)
		if counts, _ := api.HasAnswered("silent as well", patience); counts {
			t.Error("the time before the connection was lost counts")
		}
		for name := range hub.works {
			r := works.get(types.NamespacedName{Namespace: testCluster, Name: name})
			if r == nil {
				t.Errorf("work %s is missing", name)
				continue
			}
			o, err := r.object()
			if err != nil || o.GetAnnotations()[fleet.AnnotationWorkSource] != name {
				t.Errorf("work %s has %v, %v", name, o.GetAnnotations(), err)
			}
		}
	})
}

// O14: a source that does not answer counts as having no works when nothing has come from it for the grace period of evictions, and for
// long enough to answer where that is short. Once it sends something, it may have works after all.
func TestSilence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		patience, speaks, want time.Duration // since the beginning
		asks                   bool          // it requests statuses instead of sending a work
	}{
		"no grace period":                    {want: minSilence},
		"a short grace period":               {patience: time.Second, want: minSilence},
		"a long grace period":                {patience: time.Hour, want: time.Hour},
		"it sends a work":                    {patience: time.Hour, speaks: 10 * time.Minute, want: 70 * time.Minute},
		"it sends a work, no grace period":   {speaks: time.Minute, want: time.Minute + minSilence},
		"it sends a work early, short grace": {patience: minSilence - 1, speaks: time.Second, want: time.Second + minSilence},
		"it requests statuses":               {patience: time.Hour, speaks: 10 * time.Minute, want: time.Hour, asks: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				hub := &sources{works: map[string]*workv1.ManifestWork{"a": newWork("a")}}
				hub.works["a"].UID = "a"
				api := New(ctx, Options{Broker: hub, Cluster: testCluster, Source: testCluster, NamesSources: true, Clock: clock.RealClock{}})
				if err := api.collections[resourceWorks].await(ctx); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				counts := func(at time.Duration) bool {
					<-time.After(time.Until(begin.Add(at)))
					withoutWorks, _ := api.HasAnswered("silent", test.patience)
					synctest.Wait()
					return withoutWorks
				}
				speak := func() {
					work := newWork("late")
					work.UID = "late"
					hub.send(hub.subscription.Load(), "silent", []*cloudevents.Event{encode(cloudevents.ManifestBundles, cloudevents.Update, work)})
					synctest.Wait()
				}
				if test.speaks > 0 {
					<-time.After(test.speaks)
				}
				switch {
				case test.asks:
					kind := cloudevents.Type{DataType: cloudevents.ManifestBundles, SubResource: cloudevents.Status, Action: cloudevents.Resync}
					hub.send(hub.subscription.Load(), "silent", []*cloudevents.Event{cloudevents.New("silent", kind, time.Now())})
					synctest.Wait()
				case test.speaks > 0:
					speak()
				}
				if counts(test.want - time.Second) {
					t.Errorf("it counts as without works a second before %s", test.want)
				}
				if !counts(test.want) {
					t.Errorf("it does not count as without works after %s", test.want)
				}
				speak()
				if counts(test.want) {
					t.Error("it counts as without works when it has just sent something")
				}
			})
		})
	}
}

// CE-05: a hub may take its time for an answer with many works, and answer before it acknowledges the request; one that is silent is asked
// again.
func TestSlowResync(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pause  time.Duration
		silent bool
		live   bool
	}{
		"works keep coming":          {pause: endOfResync * 2 / 3, live: true},
		"before the acknowledgement": {silent: true, live: true},
		"silence":                    {pause: endOfResync + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				hub := &slowHub{pause: test.pause, silent: test.silent, dataType: cloudevents.ManifestBundles}
				for _, name := range []string{"a", "b", "c"} {
					work := newWork(name)
					work.UID = types.UID(name)
					hub.objects = append(hub.objects, work)
				}
				works := New(ctx, Options{Broker: hub, Cluster: testCluster, Source: testCluster, Clock: clock.RealClock{}}).collections[resourceWorks]
				err := works.await(ctx)
				for range len(hub.objects) { // readers wait for less time than the hub takes
					if err != nil {
						err = works.await(ctx)
					}
				}
				<-time.After(2 * firstResubscription)
				works.mu.Lock()
				defer works.mu.Unlock()
				if live := err == nil && len(works.records) == len(hub.objects); live != test.live {
					t.Errorf("got %d works, %v", len(works.records), err)
				}
				if requests := hub.requests.Load(); (requests == 1) != test.live {
					t.Errorf("the hub was asked %d times", requests)
				}
			})
		})
	}
}

// scriptedHub hands the mark of each resync request to a test, which sends what it wants.
type scriptedHub struct {
	slowHub
	marks chan string
}

// Publish implements Broker.
func (h *scriptedHub) Publish(_ context.Context, request *cloudevents.Event) error {
	known := cloudevents.ResourceVersions{}
	if err := request.ReadData(&known); err != nil {
		return err
	}
	h.marks <- known.Versions[len(known.Versions)-1].ResourceID
	return nil
}

// send returns when the agent has done what it does upon the events.
func (h *scriptedHub) send(events ...*cloudevents.Event) {
	for _, event := range events {
		h.subscription.Load().events <- event
		synctest.Wait()
	}
}

// CE-05: what a restored hub says of a work while its answer to a resync request is under way, and the answer leaves out, is asked for when
// that is over, whether the answer comes to its end or not.
func TestRestoredDuringResync(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(h *scriptedHub, mark string){
		"the answer ends": func(h *scriptedHub, mark string) { h.send(gone(cloudevents.ManifestBundles, mark)) },
		"it does not": func(*scriptedHub, string) {
			<-time.After(endOfResync + time.Second)
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				hub := &scriptedHub{marks: make(chan string, 10)}
				works := New(ctx, Options{Broker: hub, Cluster: testCluster, Source: testCluster, Clock: clock.RealClock{}}).collections[resourceWorks]
				of := func(action cloudevents.Action, name, version string) *cloudevents.Event {
					work := newWork(name)
					work.UID, work.ResourceVersion = types.UID(name), version
					return encode(cloudevents.ManifestBundles, action, work)
				}
				live := make(chan error, 1)
				go func() { live <- works.await(ctx) }()
				first := <-hub.marks
				hub.send(of(cloudevents.ResyncResponse, "a", "1500"), of(cloudevents.ResyncResponse, "b", "1500"),
					gone(cloudevents.ManifestBundles, first))
				if err := <-live; err != nil {
					t.Fatal(err)
				}
				hub.send(of(cloudevents.Update, "a", "1000"))
				second := <-hub.marks
				hub.send(of(cloudevents.Update, "b", "1000"), of(cloudevents.ResyncResponse, "a", "1000"))
				end(hub, second)
				select {
				case third := <-hub.marks:
					hub.send(of(cloudevents.ResyncResponse, "b", "1000"), gone(cloudevents.ManifestBundles, third))
				default:
					t.Error("the hub is not asked again")
				}
				for _, name := range []string{"a", "b"} {
					if r := works.get(types.NamespacedName{Namespace: testCluster, Name: name}); r == nil || r.hubVersion != "1000" {
						t.Errorf("work %s is not as the hub has it", name)
					}
				}
				if len(hub.marks) > 0 {
					t.Error("the hub is asked once more")
				}
			})
		})
	}
}

// deadHub answers as long as the API behind it does. Its subscriptions outlive that.
type deadHub struct {
	slowHub
	dead atomic.Bool
}

// Publish implements Broker.
func (h *deadHub) Publish(ctx context.Context, request *cloudevents.Event) error {
	if h.dead.Load() {
		return status.Error(codes.Unavailable, "it cannot be reviewed now whether the agent may")
	}
	return h.slowHub.Publish(ctx, request)
}

// RG-54: of several hubs, an agent leaves one whose API does not answer, also while the gRPC server in front of it keeps the subscription,
// and no other.
func TestHubWithoutAPIIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		joined := newCluster()
		joined.UID, joined.ResourceVersion, joined.Spec.HubAcceptsClient = "c", "1", true
		hub := &deadHub{slowHub: slowHub{objects: []client.Object{joined}, dataType: cloudevents.ManagedClusters}}
		api := New(ctx, Options{Broker: hub, Address: "hub.invalid:443", Cluster: testCluster, Source: testCluster, Clock: clock.RealClock{}})
		c, err := hubclient.New(api.Config())
		if err != nil {
			t.Fatal(err)
		}
		const patience = time.Minute
		left := make(chan error, 1)
		go func() { left <- monitor.New(c, testCluster, patience, clock.RealClock{}).Start(ctx) }()
		select {
		case err := <-left:
			t.Fatalf("a hub that answers is left: %v", err)
		case <-time.After(time.Hour):
		}
		hub.dead.Store(true)
		select {
		case err := <-left:
			var lost *monitor.LostError
			if !errors.As(err, &lost) || lost.Reason != monitor.Gone {
				t.Errorf("got %v, want %s", err, monitor.Gone)
			}
		case <-time.After(2 * patience):
			t.Error("the hub is not left")
		}
		if !api.collections[resourceClusters].isLive() {
			t.Error("the subscription has ended")
		}
	})
}
