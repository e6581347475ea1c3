package availability

import (
	"context"
	"errors"
	"net/http"
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
	// longestSilence is for how long the hub may receive nothing, before it assumes that heartbeats of agents have been lost: two renewals of
	// its own have failed.
	longestSilence = 25 * time.Second
)

// renewOwn renews the hub's own Lease until the context ends. A process that stood still, like one on a machine that was suspended, and a
// storage that takes no writes, such as one that is full, keep agents from renewing theirs. No cluster is lost by that.
func (c *Controller) renewOwn(ctx context.Context) error {
	for {
		next := c.clock.After(ownInterval)
		c.renewOwnOnce(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-next:
		}
	}
}

func (c *Controller) renewOwnOnce(ctx context.Context) {
	logger := log.FromContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, ownInterval)
	defer cancel()
	err := c.client.Apply(ctx, coordinationv1ac.Lease(ownLease, c.leaseNamespace).WithSpec(coordinationv1ac.LeaseSpec().
		WithHolderIdentity(ownLease).WithLeaseDurationSeconds(int32(longestSilence/time.Second)).
		WithRenewTime(metav1.NewMicroTime(c.clock.Now()))), client.FieldOwner(ownLease), client.ForceOwnership)
	switch {
	case err == nil:
		if interrupted := c.heartbeats.renewedOwn(); interrupted > 0 {
			logger.Info("The hub could not receive heartbeats for a while, which does not count", "for", interrupted.Round(time.Second).String())
		}
	case isRefusal(err):
		logger.V(1).Info("The hub cannot tell when it receives no heartbeats", "reason", err.Error())
		c.heartbeats.refusedOwn()
	default:
		logger.Error(err, "The hub could not renew its own Lease, so that agents may not renew theirs", "lease", c.leaseNamespace+"/"+ownLease)
	}
}

// isRefusal reports whether the API server answers, and does not take this Lease: without a right, a namespace, or by admission.
func isRefusal(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	code := answer.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusUnauthorized &&
		code != http.StatusRequestTimeout && code != http.StatusTooManyRequests
}
