package leaderelection

import (
	"context"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// requestTimeout is how long one request about a Lease may take. An elector counts renewDeadline from when it tries to renew again, which
// is retryPeriod after the answer to the last renewal, and others count leaseDuration from that renewal on.
const requestTimeout = leaseDuration - renewDeadline - retryPeriod

// inTime is a Lease about which no request takes longer than requestTimeout.
type inTime struct{ resourcelock.Interface }

// Get implements resourcelock.Interface.
func (l inTime) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return l.Interface.Get(ctx)
}

// Create implements resourcelock.Interface.
func (l inTime) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return l.Interface.Create(ctx, record)
}

// Update implements resourcelock.Interface.
func (l inTime) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return l.Interface.Update(ctx, record)
}
