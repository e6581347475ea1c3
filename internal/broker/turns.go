package broker

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// mostWaiting is how many resync requests of one user about one topic may wait for their turn. An agent has one at a time, and add-ons may
// have some; each takes up to 4 MiB.
const mostWaiting = 10

// turns lets one resync request of a user about a topic go on at a time.
type turns struct {
	mu sync.Mutex
	of map[asker]*turn
}

// asker is who makes a resync request, and about what.
type asker struct {
	topic
	user string
}

type turn struct {
	free chan struct{} // has one while no request goes on
	// requests are those that wait or go on.
	requests int
}

func newTurns() turns { return turns{of: map[asker]*turn{}} }

// take returns when it is the turn of a request, which ends by done. It fails if too many wait.
func (t *turns) take(ctx context.Context, who asker) (done func(), err error) {
	one, err := t.join(who)
	if err != nil {
		return nil, err
	}
	select {
	case <-one.free:
		return func() {
			one.free <- struct{}{}
			t.leave(who)
		}, nil
	case <-ctx.Done():
		t.leave(who)
		return nil, context.Cause(ctx)
	}
}

func (t *turns) join(who asker) (*turn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.of[who]
	if one == nil {
		one = &turn{free: make(chan struct{}, 1)}
		one.free <- struct{}{}
		t.of[who] = one
	}
	if one.requests > mostWaiting {
		return nil, status.Errorf(codes.ResourceExhausted, "%d resync requests of user %q for %s of cluster %q wait already; make one at a time",
			mostWaiting, who.user, who.dataType, who.cluster)
	}
	one.requests++
	return one, nil
}

func (t *turns) leave(who asker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[who].requests--; t.of[who].requests == 0 {
		delete(t.of, who)
	}
}
