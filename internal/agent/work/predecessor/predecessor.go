// Package predecessor knows which clusters are not on the hub any more. A cluster that was deleted by force and has joined again
// under another name takes over what was applied under the earlier name; two names that are on the hub at the same time leave each
// other's objects alone.
package predecessor

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// PollInterval is how often the hub is checked for a cluster, which an agent cannot watch because it is not its own.
const PollInterval = time.Minute

// Clusters are those of the hub, as far as the agent may know.
type Clusters struct {
	// Exists reports whether the hub has a cluster of the name.
	Exists func(ctx context.Context, cluster string) (bool, error)
	Clock  clock.PassiveClock

	inFlight singleflight.Group
	mu       sync.Mutex
	answers  map[string]answer
}

type answer struct {
	left bool
	err  error
	at   time.Time
}

// Left reports whether a cluster has left the hub. Works check the same few clusters, so an answer is good for a while, and those
// that check at the same time wait for the same one. The error is for a condition.
func (c *Clusters) Left(ctx context.Context, cluster string) (bool, error) {
	if cached, ok := c.recall(cluster); ok {
		return cached.left, cached.err
	}
	found := c.inFlight.DoChan(cluster, func() (any, error) { return c.query(ctx, cluster), nil })
	select {
	case result := <-found:
		now := result.Val.(answer)
		return now.left, now.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (c *Clusters) recall(cluster string) (answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cached, ok := c.answers[cluster]
	return cached, ok && c.Clock.Since(cached.at) < PollInterval/2
}

func (c *Clusters) query(ctx context.Context, cluster string) answer {
	if cached, ok := c.recall(cluster); ok { // which came a moment ago
		return cached
	}
	exists, err := c.Exists(ctx, cluster)
	if err != nil {
		log.FromContext(ctx).Info("It cannot be found out whether a cluster is still on the hub", "cluster", cluster, "error", err.Error())
		err = fmt.Errorf("it cannot be found out whether cluster %s is still on the hub: %w", cluster, lasting(err))
	}
	now := answer{left: err == nil && !exists, err: err, at: c.Clock.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers == nil {
		c.answers = map[string]answer{}
	}
	c.answers[cluster] = now
	return now
}

// lasting is an error for a condition. The error of a connection contains addresses and ports, which differ each time, so that the
// condition would be written each time.
func lasting(err error) error {
	if failed := new(url.Error); errors.As(err, &failed) {
		return errors.New("the hub does not answer; the log of the agent says more")
	}
	return err
}
