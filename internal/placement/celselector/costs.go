package celselector

// Costs sums up the cost of evaluations for many clusters, in the units of Kubernetes.
type Costs struct{ spent, limit int64 }

// NewCosts returns a sum of 0. Once the sum reaches the limit, no expression is evaluated any more, and no cluster matches.
func NewCosts(limit int64) *Costs { return &Costs{limit: limit} }

func (c *Costs) add(units int64) { c.spent += units }

// Spent is the sum.
func (c *Costs) Spent() int64 { return c.spent }

// Exceeded reports whether the sum has reached the limit.
func (c *Costs) Exceeded() bool { return c.spent >= c.limit }
