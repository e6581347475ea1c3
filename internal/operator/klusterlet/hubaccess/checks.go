package hubaccess

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// How long a result counts. There is no event for what changes on the hub: a connection that does not work is checked again soon; that of
// a working one is a safety net, as the agent itself reports on it.
const (
	degradedInterval   = 30 * time.Second
	functionalInterval = 10 * time.Minute
)

// checkTimeout bounds all requests of a check.
const checkTimeout = time.Minute

// Checks run in the background, one at a time for each Klusterlet, so that a hub that does not answer blocks nothing.
type Checks struct {
	ctx   context.Context //nolint:containedctx // of the operator: a check outlives the reconcile that starts it
	clock clock.Clock
	done  func(klusterlet string)
	check func(context.Context, Credentials) metav1.Condition

	mu     sync.Mutex
	states map[string]*state
}

// state is what is known about the connection of a Klusterlet.
type state struct {
	credentials [sha256.Size]byte
	result      *metav1.Condition
	at          time.Time
	running     bool
}

// New returns Checks without results. done is called with the name of a Klusterlet when there is a result. Checks end with the context.
func New(ctx context.Context, clock clock.Clock, done func(klusterlet string)) *Checks {
	return &Checks{ctx: ctx, clock: clock, done: done, check: Check, states: map[string]*state{}}
}

// Result returns the condition of a Klusterlet with these credentials, and when it has to be checked again. While nothing is known about
// them, the condition is nil. It starts a check where one is due.
func (c *Checks) Result(klusterlet string, credentials Credentials) (*metav1.Condition, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hash := credentials.hash()
	s := c.states[klusterlet]
	if s == nil || s.credentials != hash {
		s = &state{credentials: hash}
		c.states[klusterlet] = s
	}
	if s.result == nil {
		c.start(klusterlet, s, credentials)
		return nil, degradedInterval
	}
	wait := functionalInterval
	if s.result.Status == metav1.ConditionTrue {
		wait = degradedInterval
	}
	left := wait - c.clock.Since(s.at)
	if left <= 0 {
		c.start(klusterlet, s, credentials)
		left = wait
	}
	return s.result.DeepCopy(), left
}

// Forget ends what is known about a Klusterlet.
func (c *Checks) Forget(klusterlet string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.states, klusterlet)
}

func (c *Checks) start(klusterlet string, s *state, credentials Credentials) {
	if s.running {
		return
	}
	s.running = true
	go func() {
		ctx, cancel := context.WithTimeout(c.ctx, checkTimeout)
		defer cancel()
		result := c.check(ctx, credentials)
		if c.ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		s.result, s.at, s.running = &result, c.clock.Now(), false
		current := c.states[klusterlet] == s
		c.mu.Unlock()
		if current {
			c.done(klusterlet)
		}
	}()
}

// HasCredential reports whether the condition says that the agent has a credential for the hub: that it has registered.
func HasCredential(condition *metav1.Condition) bool {
	return condition != nil && !strings.Contains(condition.Reason, fleet.ReasonHubKubeConfigSecretMissing)
}

func (c Credentials) hash() (sum [sha256.Size]byte) {
	h := sha256.New()
	fmt.Fprintf(h, "%s %t %t %t ", c.Namespace, c.SkipBootstrap, c.GRPC, c.AWS)
	write(h, c.Bootstrap)
	write(h, c.Hub)
	copy(sum[:], h.Sum(nil))
	return sum
}

func write(w io.Writer, secret *corev1.Secret) {
	if secret == nil {
		fmt.Fprint(w, "none ")
		return
	}
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		fmt.Fprintf(w, "%s %d %s ", key, len(secret.Data[key]), secret.Data[key])
	}
}
