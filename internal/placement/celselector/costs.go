package celselector

import "context"

// Costs sums up the cost of evaluations for many clusters, in the units of Kubernetes.
type Costs struct {
	ctx          context.Context //nolint:containedctx // for as long as somebody is ready to pay
	spent, limit int64
}

// NewCosts returns a sum of 0. Once the sum reaches the limit, or ctx has ended, no expression is evaluated any more, and no cluster
// matches. An expression that is being evaluated ends soon after ctx.
func NewCosts(ctx context.Context, limit int64) *Costs { return &Costs{ctx: ctx, limit: limit} }

func (c *Costs) add(units int64) { c.spent += units }

// Spent is the sum.
func (c *Costs) Spent() int64 { return c.spent }

// Exceeded reports whether the sum has reached the limit.
func (c *Costs) Exceeded() bool { return c.spent >= c.limit }

// Ended reports whether no expression is evaluated any more.
func (c *Costs) Ended() bool { return c.Exceeded() || c.ctx.Err() != nil }
