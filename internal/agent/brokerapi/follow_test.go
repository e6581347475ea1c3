package brokerapi

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
)

// slowHub makes a pause before each event of its answer to a resync request, and may not acknowledge the request.
type slowHub struct {
	pause        time.Duration
	silent       bool
	works        []*workv1.ManifestWork
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
	for _, work := range h.works {
		events = append(events, encode(cloudevents.ManifestBundles, cloudevents.ResyncResponse, work))
	}
	for _, event := range append(events, gone(cloudevents.ManifestBundles, mark)) {
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
				hub := &slowHub{pause: test.pause, silent: test.silent}
				for _, name := range []string{"a", "b", "c"} {
					work := newWork(name)
					work.UID = types.UID(name)
					hub.works = append(hub.works, work)
				}
				works := New(ctx, Options{Broker: hub, Cluster: testCluster, Source: testCluster, Clock: clock.RealClock{}}).collections[resourceWorks]
				err := works.await(ctx)
				for range len(hub.works) { // readers wait for less time than the hub takes
					if err != nil {
						err = works.await(ctx)
					}
				}
				<-time.After(2 * firstResubscription)
				works.mu.Lock()
				defer works.mu.Unlock()
				if live := err == nil && len(works.records) == len(hub.works); live != test.live {
					t.Errorf("got %d works, %v", len(works.records), err)
				}
				if requests := hub.requests.Load(); (requests == 1) != test.live {
					t.Errorf("the hub was asked %d times", requests)
				}
			})
		})
	}
}
