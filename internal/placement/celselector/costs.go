package celselector

// Costs sums up what the expressions for many clusters cost, in the units of Kubernetes. nil sums nothing up.
type Costs struct{ units int64 }

func (c *Costs) add(units uint64) {
	if c != nil {
		c.units += int64(units)
	}
}

// Spent is the sum.
func (c *Costs) Spent() int64 { return c.units }
