package apply

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// scoutPause is the time between two tries to reach a hub that does not answer.
	scoutPause = 10 * time.Second
	// unheard is when a work tries by itself that the scout has not woken: a safety net.
	unheard = time.Hour
)

// backlog are the works that have something to tell a hub that does not answer. One of them, the scout, goes on trying, and
// when the hub takes what any has to say, all are heard: whatever their number, an absent hub is asked once in a while, and one
// that is back knows everything at once.
type backlog struct {
	mu    sync.Mutex
	works map[string]bool
	scout string
	// wake has a work looked at after a time.
	wake func(work string, after time.Duration)
}

// unreachableError is that the hub did not answer.
type unreachableError struct{ error }

func (e *unreachableError) Unwrap() error { return e.error }

// heard passes on what became of a write on the hub, and wakes the works of the backlog if the hub took it.
func (b *backlog) heard(err error) error {
	var answer apierrors.APIStatus
	switch {
	case err == nil:
		b.flush()
		return nil
	case errors.As(err, &answer) && !isUnwell(answer.Status().Code):
		return err
	default:
		return &unreachableError{err}
	}
}

// isUnwell tells whether an answer is that of a hub that has no time or is about to start, or of a proxy in its place. The next
// request will hardly fare better, whatever it is about.
func isUnwell(code int32) bool {
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

func (b *backlog) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for work := range b.works {
		b.wake(work, 0)
	}
	clear(b.works)
	b.scout = ""
}

// judge decides when a work is looked at again, by how the last look ended.
func (b *backlog) judge(ctx context.Context, work string, result ctrl.Result, err error) (ctrl.Result, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var unreachable *unreachableError
	if !errors.As(err, &unreachable) {
		b.leave(work)
		return result, err
	}
	if b.wake == nil || hasOtherCauses(err) {
		return result, err
	}
	b.works[work] = true
	if b.scout == "" {
		b.scout = work
		log.FromContext(ctx).Info("The hub does not answer; what there is to report waits until it does", "reason", err.Error())
	}
	if b.scout != work {
		return ctrl.Result{RequeueAfter: unheard}, nil
	}
	// Another one the next time: the hub may have no answer to this one alone.
	b.scout = b.other(work)
	if b.scout == work {
		return ctrl.Result{RequeueAfter: scoutPause}, nil
	}
	b.wake(b.scout, scoutPause)
	return ctrl.Result{RequeueAfter: unheard}, nil
}

// other is any other work of the backlog, or the same if there is none.
func (b *backlog) other(work string) string {
	for other := range b.works {
		if other != work {
			return other
		}
	}
	return work
}

// leave is for a work that has nothing to say any more, or cannot say it although the hub answers. If it was the scout, another
// takes its place, and passes it on if it fares alike.
func (b *backlog) leave(work string) {
	delete(b.works, work)
	if b.scout != work {
		return
	}
	b.scout = ""
	for next := range b.works {
		b.scout = next
		b.wake(next, 0)
		return
	}
}

// hasOtherCauses tells whether there is more to try again than what concerns the hub.
func hasOtherCauses(err error) bool {
	joined, ok := err.(interface{ Unwrap() []error })
	return ok && len(joined.Unwrap()) > 1
}
