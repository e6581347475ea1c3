package broker

import (
	"sync"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

// mostPending is how many resources may wait for one subscriber. An entry takes about 200 bytes.
const mostPending = 10000

// queue has the resources that a subscriber is to be told of, each once, in the order in which they changed.
type queue struct {
	mu      sync.Mutex
	order   []Ref
	actions map[Ref]cloudevents.Action
	// filled is signalled when there is something to take, and taken is closed when there is room again.
	filled chan struct{}
	taken  chan struct{}
}

func newQueue() *queue {
	return &queue{actions: map[Ref]cloudevents.Action{}, filled: make(chan struct{}, 1), taken: make(chan struct{})}
}

// put adds a resource, unless it waits already. One that waits becomes the answer to a resync request that it is put for: to an agent that
// knows a later version, from before a restore, nothing else is news. If there is no room, put returns what is closed when there is.
func (q *queue) put(ref Ref, action cloudevents.Action) (full <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, waits := q.actions[ref]; waits {
		if action == cloudevents.ResyncResponse {
			q.actions[ref] = action
		}
		return nil
	}
	if len(q.order) >= mostPending {
		return q.taken
	}
	q.order = append(q.order, ref)
	q.actions[ref] = action
	select {
	case q.filled <- struct{}{}:
	default:
	}
	return nil
}

// take removes the first resource.
func (q *queue) take() (ref Ref, action cloudevents.Action, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.order) == 0 {
		q.order = nil
		return Ref{}, "", false
	}
	ref = q.order[0]
	q.order = q.order[1:]
	action = q.actions[ref]
	delete(q.actions, ref)
	if len(q.order) == mostPending-1 {
		close(q.taken)
		q.taken = make(chan struct{})
	}
	return ref, action, true
}
