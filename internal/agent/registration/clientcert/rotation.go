package clientcert

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
)

// The share of its lifetime that a certificate has left when it is renewed (RG-08). Drawn at random, so that a fleet that
// registered together does not renew together.
const (
	renewAtMost  = 0.25
	renewAtLeast = 0.20
)

// retryRenewal is the wait after a renewal that failed. There is a fifth of the certificate's life for retries.
const retryRenewal = time.Minute

// Rotation renews the certificate in a store for as long as the agent runs. It is a manager's Runnable.
type Rotation struct {
	Requester *Requester
	Store     *hubkubeconfig.Store
	Clock     clock.Clock
}

// Start renews whenever it is time, until the context ends. It returns an error when the certificate has expired for good:
// the agent then has to bootstrap again.
func (r *Rotation) Start(ctx context.Context) error {
	for {
		credential, err := r.Store.Load()
		if err != nil || credential == nil {
			return fmt.Errorf("the hub credential is gone from %s: %w", r.Store.Dir, err)
		}
		notBefore, notAfter, err := credential.Lifetime()
		if err != nil {
			return err
		}
		if !r.Clock.Now().Before(notAfter) {
			return fmt.Errorf("the client certificate for the hub expired on %s", notAfter.Format(time.RFC3339))
		}
		if !r.sleepUntil(ctx, renewalTime(notBefore, notAfter)) {
			return nil
		}
		if err := r.renew(ctx, credential, notAfter); err != nil {
			log.FromContext(ctx).Error(err, "Renewal of the client certificate failed and is tried again", "expires", notAfter)
			if !r.sleepUntil(ctx, r.Clock.Now().Add(retryRenewal)) {
				return nil
			}
		}
	}
}

func renewalTime(notBefore, notAfter time.Time) time.Time {
	left := renewAtLeast + rand.Float64()*(renewAtMost-renewAtLeast)
	return notAfter.Add(-time.Duration(left * float64(notAfter.Sub(notBefore))))
}

// renew gives up when the old certificate expires: from then on nobody would listen to this agent.
func (r *Rotation) renew(ctx context.Context, old *hubkubeconfig.Credential, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	certificate, key, err := r.Requester.Request(ctx)
	if err != nil {
		return err
	}
	next := *old
	next.Certificate, next.Key, next.Identity = certificate, key, r.Requester.Identity
	if err := r.Store.Save(ctx, &next); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Client certificate renewed")
	return nil
}

// sleepUntil reports false if the context ended first.
func (r *Rotation) sleepUntil(ctx context.Context, t time.Time) bool {
	wait := t.Sub(r.Clock.Now())
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := r.Clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
