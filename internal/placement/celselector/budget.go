package celselector

import "sync/atomic"

// Budget is what the expressions for many clusters may cost together, in the units of Kubernetes. It is safe for concurrent
// use; nil is without a limit.
type Budget struct{ left atomic.Int64 }

// NewBudget returns a budget of so many units.
func NewBudget(units int64) *Budget {
	b := &Budget{}
	b.left.Store(units)
	return b
}

func (b *Budget) spend(units uint64) {
	if b != nil {
		b.left.Add(-int64(units))
	}
}

// Spent tells whether more was spent than there was.
func (b *Budget) Spent() bool { return b != nil && b.left.Load() < 0 }
