package availability

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// ownLease is the Lease that the hub renews itself, as agents renew theirs.
	ownLease = "capstan-hub-heartbeat"
	// ownInterval is how often it does so.
	ownInterval = 10 * time.Second
	// interruption is after how long without a renewal the hub takes it that those of agents have been lost, too: two have failed.
	interruption = 25 * time.Second
)

// renewOwn renews the hub's own Lease until the context ends. A process that stood still, like one on a machine that was suspended, and a
// storage that takes no writes, such as one that is full, keep agents from renewing theirs. No cluster is lost by that.
func (c *Controller) renewOwn(ctx context.Context) error {
	for {
		c.renewOwnOnce(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-c.clock.After(ownInterval):
		}
	}
}

func (c *Controller) renewOwnOnce(ctx context.Context) {
	logger := log.FromContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, ownInterval)
	defer cancel()
	err := c.client.Apply(ctx, coordinationv1ac.Lease(ownLease, c.leaseNamespace).WithSpec(coordinationv1ac.LeaseSpec().
		WithHolderIdentity(ownLease).WithLeaseDurationSeconds(int32(interruption/time.Second)).
		WithRenewTime(metav1.NewMicroTime(c.clock.Now()))), client.FieldOwner(ownLease), client.ForceOwnership)
	switch {
	case err == nil:
		if gap := c.heartbeats.observeOwn(); gap > 0 {
			logger.Info("The hub could not receive heartbeats; clusters have their whole grace again", "for", gap.Round(time.Second).String())
		}
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		logger.V(1).Info("The hub cannot tell when it receives no heartbeats", "reason", err.Error())
		c.heartbeats.forgetOwn()
	default:
		logger.Error(err, "The hub could not renew its own Lease, so that agents may not renew theirs", "lease", c.leaseNamespace+"/"+ownLease)
	}
}
