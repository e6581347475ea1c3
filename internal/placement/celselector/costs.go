package celselector

import "math"

// Costs sums up what the expressions for many clusters cost, in the units of Kubernetes.
type Costs struct{ spent, limit int64 }

// NewCosts returns an empty sum. When it has reached the limit, no further expression is evaluated: no cluster matches then.
func NewCosts(limit int64) *Costs { return &Costs{limit: limit} }

// unlimited are the costs of those who do not count them.
func unlimited() *Costs { return NewCosts(math.MaxInt64) }

func (c *Costs) add(units int64) { c.spent += units }

// Spent is the sum.
func (c *Costs) Spent() int64 { return c.spent }

// Exceeded tells whether the sum has reached the limit.
func (c *Costs) Exceeded() bool { return c.spent >= c.limit }
