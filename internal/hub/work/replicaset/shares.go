package replicaset

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Bounds for the cost of overrides, in steps of a Renderer. A step takes about two microseconds at most.
const (
	// stepRate is what the sets of one namespace may cost in a second on average: a quarter of a processor. After stepBurst they wait.
	stepRate  = 125_000
	stepBurst = 4 * stepRate
	// shortPass is the cost above which a pass counts as long. At most longPasses of these run at a time, and one per namespace, so that
	// workers are left for other sets.
	shortPass  = 50_000
	longPasses = 2
)

// shares accounts the cost of overrides by namespace.
type shares struct {
	mu         sync.Mutex
	namespaces map[string]*share
	long       int
}

// share is the account of one namespace.
type share struct {
	steps  *rate.Limiter
	passes int  // running passes
	long   bool // whether one of them is long
}

// postponedError is why a pass over a set with overrides cannot run now.
type postponedError struct {
	namespace string
	wait      time.Duration
}

// Error says what to do, too.
func (e *postponedError) Error() string {
	return fmt.Sprintf("the annotation %s takes long on all clusters, and the sets with it in namespace %s have had their share of the time: "+
		"this one waits for its turn; fewer overrides, of fewer manifests, take less", fleet.AnnotationOverrides, e.namespace)
}

// start starts a pass over a set with overrides, unless the sets of its namespace have used up their share.
func (s *shares) start(namespace string, now time.Time) (*pass, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.namespaces, func(_ string, other *share) bool { return other.passes == 0 && other.steps.TokensAt(now) >= stepBurst })
	if s.namespaces[namespace] == nil {
		if s.namespaces == nil {
			s.namespaces = map[string]*share{}
		}
		s.namespaces[namespace] = &share{steps: rate.NewLimiter(stepRate, stepBurst)}
	}
	share := s.namespaces[namespace]
	if left := share.steps.TokensAt(now); left <= 0 {
		return nil, &postponedError{namespace: namespace, wait: time.Duration((1 - left) / stepRate * float64(time.Second))}
	}
	share.passes++
	return &pass{shares: s, share: share, namespace: namespace}, nil
}

// pass is one pass over a set with overrides.
type pass struct {
	shares    *shares
	share     *share
	namespace string
	spent     int
	long      bool
	writing   bool
	postponed error
}

// charge adds steps to the cost of the pass. When that makes the pass a long one and no other long pass may run, it fails, now and from
// then on. A pass that has started to write goes on.
func (p *pass) charge(steps int) error {
	p.shares.mu.Lock()
	defer p.shares.mu.Unlock()
	p.spent += steps
	switch {
	case p.writing || p.long || p.spent <= shortPass:
		return nil
	case p.postponed != nil:
		return p.postponed
	case p.share.long || p.shares.long == longPasses:
		p.postponed = &postponedError{namespace: p.namespace, wait: time.Second}
		return p.postponed
	}
	p.long, p.share.long = true, true
	p.shares.long++
	return nil
}

// startWriting fails if the pass was postponed, because its results are incomplete then.
func (p *pass) startWriting() error {
	if p == nil { // a set without overrides
		return nil
	}
	p.writing = true
	return p.postponed
}

// end charges the cost of the pass to its namespace.
func (p *pass) end(now time.Time) {
	p.shares.mu.Lock()
	defer p.shares.mu.Unlock()
	p.share.passes--
	for ; p.spent > 0; p.spent -= stepBurst {
		p.share.steps.ReserveN(now, min(p.spent, stepBurst))
	}
	if p.long {
		p.share.long = false
		p.shares.long--
	}
}
