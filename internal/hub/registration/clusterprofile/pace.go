package clusterprofile

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The reports of an agent are written to a profile in each namespace that binds a set of its cluster. The first statusBurst changes of
// each profile are written at once, and later ones once in statusInterval, together.
const (
	statusBurst    = 5
	statusInterval = 10 * time.Second
)

// pace bounds how often the status of each profile is written. It does not outlive the process.
type pace struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	writers map[client.ObjectKey]*rate.Limiter
}

func newPace(clk clock.PassiveClock) *pace {
	return &pace{clock: clk, writers: map[client.ObjectKey]*rate.Limiter{}}
}

// wait returns how long the profile must not be written. After 0, the caller may write it once.
func (p *pace) wait(profile client.ObjectKey) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	limiter := p.writers[profile]
	if limiter == nil {
		limiter = rate.NewLimiter(rate.Every(statusInterval), statusBurst)
		p.writers[profile] = limiter
	}
	now := p.clock.Now()
	reservation := limiter.ReserveN(now, 1)
	wait := reservation.DelayFrom(now)
	if wait > 0 {
		reservation.CancelAt(now)
	}
	return wait
}

// forget removes a deleted profile.
func (p *pace) forget(profile client.ObjectKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.writers, profile)
}
