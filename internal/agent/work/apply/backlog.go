package apply

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// probeInterval is the time between two attempts to reach a hub that does not answer.
	probeInterval = 10 * time.Second
	// fallback is when a work is reconciled that the probing work has not requeued: a safety net.
	fallback = time.Hour
)

// backlog holds the works with a status to report to a hub that does not answer. One of them, the probing work, goes on trying, and
// when the hub accepts any write, all are requeued: whatever their number, a hub that is down gets one request per probeInterval, and one
// that is back gets all reports at once. A circuit breaker in the client would not do: it would have to wake the works that wait, too, when
// it closes.
type backlog struct {
	mu    sync.Mutex
	works map[string]bool
	probe string // the probing work
	// requeue enqueues a work after a time.
	requeue func(work string, after time.Duration)
}

// unreachableError is that the hub did not answer.
type unreachableError struct{ error }

func (e *unreachableError) Unwrap() error { return e.error }

// observe returns the error of a write to the hub, as an unreachableError if the hub did not answer. A write that succeeded requeues the
// backlog.
func (b *backlog) observe(err error) error {
	var answer apierrors.APIStatus
	switch {
	case err == nil:
		b.flush()
		return nil
	case errors.As(err, &answer) && !isOverloaded(answer.Status()):
		return err
	default:
		return &unreachableError{err}
	}
}

// isOverloaded reports whether an answer is that of a hub that is overloaded or starting, or of a proxy in its place: other requests are
// likely to fail, too. That the storage does not take an object of this size is about the object alone.
func isOverloaded(status metav1.Status) bool {
	return status.Code == http.StatusTooManyRequests ||
		status.Code >= http.StatusInternalServerError && !strings.Contains(status.Message, "request is too large")
}

func (b *backlog) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for work := range b.works {
		b.requeue(work, 0)
	}
	clear(b.works)
	b.probe = ""
}

// resultOf decides when a work is reconciled again, by the result of its last reconcile.
func (b *backlog) resultOf(ctx context.Context, work string, result ctrl.Result, err error) (ctrl.Result, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var unreachable *unreachableError
	if !errors.As(err, &unreachable) {
		b.leave(work)
		return result, err
	}
	if b.requeue == nil || hasOtherCauses(err) {
		return result, err
	}
	b.works[work] = true
	if b.probe == "" {
		b.probe = work
		log.FromContext(ctx).Info("The hub takes no reports; they wait until it does", "reason", err.Error())
	}
	if b.probe != work {
		return ctrl.Result{RequeueAfter: fallback}, nil
	}
	// The next probe is another work: it may be this one alone that the hub does not answer.
	b.probe = b.other(work)
	if b.probe == work {
		return ctrl.Result{RequeueAfter: probeInterval}, nil
	}
	b.requeue(b.probe, probeInterval)
	return ctrl.Result{RequeueAfter: fallback}, nil
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

// leave removes a work that has nothing more to report, or that the hub answered with an error. If it was the probing work, another one
// takes its place.
func (b *backlog) leave(work string) {
	delete(b.works, work)
	if b.probe != work {
		return
	}
	b.probe = ""
	for next := range b.works {
		b.probe = next
		b.requeue(next, 0)
		return
	}
}

// hasOtherCauses reports whether an error is not about the hub alone.
func hasOtherCauses(err error) bool {
	joined, ok := err.(interface{ Unwrap() []error })
	return ok && len(joined.Unwrap()) > 1
}
