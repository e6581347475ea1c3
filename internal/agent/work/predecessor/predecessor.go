// Package predecessor tells which clusters are not on the hub any more. A cluster that was put out by force and has joined again
// under another name takes over what is there of its predecessor; two that have joined beside each other leave each other alone.
package predecessor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Recheck is how often the hub is asked about a cluster, which an agent cannot watch because it is not its own.
const Recheck = time.Minute

// Clusters are those of the hub, as far as the agent may know.
type Clusters struct {
	// Known asks the hub whether it has a cluster of the name.
	Known func(ctx context.Context, cluster string) (bool, error)
	Clock clock.PassiveClock

	mu      sync.Mutex
	answers map[string]answer
}

type answer struct {
	left bool
	err  error
	at   time.Time
}

// Left tells whether a cluster has left the hub. Works ask about the same few clusters, so an answer is good for a while.
func (c *Clusters) Left(ctx context.Context, cluster string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.answers[cluster]; ok && c.Clock.Since(known.at) < Recheck/2 {
		return known.left, known.err
	}
	known, err := c.Known(ctx, cluster)
	if err != nil {
		err = fmt.Errorf("it cannot be found out whether cluster %s is still on the hub: %w", cluster, err)
	}
	if c.answers == nil {
		c.answers = map[string]answer{}
	}
	now := answer{left: err == nil && !known, err: err, at: c.Clock.Now()}
	c.answers[cluster] = now
	return now.left, now.err
}
