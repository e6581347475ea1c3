package observe

import (
	"time"

	"golang.org/x/time/rate"
)

// Objects are read, and owners called, at once as often as burst after a quiet time, which a Deployment needs to become
// available, and not more often than once in an interval in the long run.
const (
	interval = 250 * time.Millisecond
	burst    = 5
)

// pace is that of something that may not be done too often.
type pace struct {
	limit *rate.Limiter
	// due is true from when it is put into its queue until it starts, rather than until a time: the queue may be late, and then does not
	// take a second entry.
	due bool
}

func newPace() *pace { return &pace{limit: rate.NewLimiter(rate.Every(interval), burst)} }

// next is how long to wait until it may be done again. It need not be queued at all if it already is.
func (p *pace) next(now time.Time) (after time.Duration, queue bool) {
	if p.due {
		return 0, false
	}
	p.due = true
	return p.limit.ReserveN(now, 1).DelayFrom(now), true
}

// start is to be called before anything is read, so that what changes from then on is not missed.
func (p *pace) start() { p.due = false }
