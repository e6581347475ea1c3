package clientcert

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// The share of its lifetime that a certificate has left when it is renewed. Drawn at random, so that a fleet that
// registered together does not renew together.
const (
	renewAtMost  = 0.25
	renewAtLeast = 0.20
)

// RetryRenewal is the least time between two renewals. There is a fifth of the certificate's life for retries.
const RetryRenewal = time.Minute

// patience is how long the hub may take for a renewal before the agent reports that it waits.
const patience = time.Minute

// resync is how often the credential is compared with its Secret: other processes may write
// it, and users may delete it. It also bounds how late a machine that was suspended renews a certificate that is due.
const resync = 5 * time.Minute

// Rotation renews the certificate in a store for as long as the agent runs. It is a manager's Runnable.
type Rotation struct {
	// Requester renews the certificate; without it, another process does, and the renewed certificate is read from the store.
	Requester *Requester
	Store     *hubkubeconfig.Store
	// Identity is whom the certificate is of.
	Identity identity.Identity
	Clock    clock.Clock
	// Report takes the state of the certificate as a condition; nil drops it.
	Report func(metav1.Condition)

	// renewal is in progress; nil if none is.
	renewal *renewal
}

// renewal is a request for the next certificate. It may take the hub long to decide upon it, which holds up nothing else.
type renewal struct {
	since time.Time
	end   context.CancelFunc
	// done is closed when the rest is known.
	done             chan struct{}
	certificate, key []byte
	err              error
}

// Start renews whenever it is time, until the context ends. It returns an error when the credential is gone, has expired for
// good or is another's now: the agent then has to bootstrap again.
func (r *Rotation) Start(ctx context.Context) error {
	left := RandomRenewalFraction()
	var receipt Receipt
	defer r.abandon()
	for {
		credential, err := r.sync(ctx)
		if err != nil {
			return err
		}
		if credential.Command() != nil { // which makes tokens as they are needed
			r.abandon()
			if !r.sleepUntil(ctx, r.Clock.Now().Add(resync), nil) {
				return nil
			}
			continue
		}
		notBefore, notAfter, err := credential.Lifetime()
		if err != nil {
			return err
		}
		now := r.Clock.Now()
		if !now.Before(notAfter) {
			return fmt.Errorf("the client certificate for the hub expired on %s", notAfter.Format(time.RFC3339))
		}
		wake := earlier(now.Add(resync), notAfter)
		var renewed <-chan struct{}
		if r.Requester != nil {
			if due := receipt.RenewalTime(notBefore, notAfter, now, left); now.Before(due) {
				r.abandon()
				r.report(credential)
				wake = earlier(wake, due)
			} else {
				var look time.Time
				look, renewed = r.renew(ctx, notAfter)
				wake = earlier(wake, look)
			}
		}
		if !r.sleepUntil(ctx, wake, renewed) {
			return nil
		}
	}
}

func (r *Rotation) report(credential *hubkubeconfig.Credential) {
	if r.Report == nil {
		return
	}
	if cond, err := Condition(credential); err == nil {
		r.Report(cond)
	}
}

func (r *Rotation) reportFailure(err error, notAfter time.Time) {
	if r.Report != nil {
		r.Report(updateFailed(err, notAfter))
	}
}

// sync brings files and Secret in line and returns what they hold.
func (r *Rotation) sync(ctx context.Context) (*hubkubeconfig.Credential, error) {
	if err := r.Store.Restore(ctx); err != nil {
		log.FromContext(ctx).Error(err, "The hub credential could not be compared with its Secret; the one in the files is used")
	}
	credential, err := r.Store.Load()
	if err != nil {
		return nil, err
	}
	if credential == nil {
		return nil, fmt.Errorf("the hub credential is gone from %s", r.Store.Dir)
	}
	holder, err := credential.Holder()
	if err != nil {
		return nil, err
	}
	if holder != r.Identity {
		return nil, fmt.Errorf("the hub credential in %s is of %s now, and this agent works as %s", r.Store.Dir, holder.User(), r.Identity.User())
	}
	if r.Requester != nil {
		if err := r.Store.PutBack(ctx); err != nil {
			log.FromContext(ctx).Error(err, "The hub credential could not be put back into its Secret; that is tried again", "after", resync)
		}
	}
	return credential, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// RandomRenewalFraction is the share of its lifetime that a credential has left when it is renewed. It is drawn once and then kept: with
// another share at each check, renewals would gather at the highest share.
func RandomRenewalFraction() float64 {
	return renewAtLeast + rand.Float64()*(renewAtMost-renewAtLeast) //nolint:gosec // it spreads renewals and protects nothing
}

// Receipt is when the process came by a credential, by the clock of its machine.
type Receipt struct {
	notAfter time.Time // distinguishes the credential from those before it
	at       time.Time
}

// RenewalTime is when the share of its lifetime is left to the credential that there is now: by the times in it, or counted from its
// receipt, whichever is earlier. By the times alone, a machine whose clock is behind would renew it when the hub does not take it any more.
func (r *Receipt) RenewalTime(notBefore, notAfter, now time.Time, left float64) time.Time {
	if !notAfter.Equal(r.notAfter) {
		*r = Receipt{notAfter: notAfter, at: now}
	}
	lifetime := notAfter.Sub(notBefore)
	spare := time.Duration(left * float64(lifetime))
	return earlier(notAfter.Add(-spare), r.at.Add(lifetime-spare))
}

// renew begins to renew the certificate, or goes on with that, and returns when to look after it: at a time, or before that when the hub
// has decided.
func (r *Rotation) renew(ctx context.Context, notAfter time.Time) (look time.Time, decided <-chan struct{}) {
	if r.renewal == nil {
		r.renewal = r.begin(ctx, notAfter)
	}
	select {
	case <-r.renewal.done:
		if err := r.finish(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Renewal of the client certificate failed and is tried again", "expires", notAfter)
			r.reportFailure(err, notAfter)
		}
		// Also after a renewal: by a clock that is far ahead of the hub's, the next certificate is due at once.
		return r.Clock.Now().Add(RetryRenewal), nil
	default:
	}
	if late := r.renewal.since.Add(patience); r.Clock.Now().Before(late) {
		return late, r.renewal.done
	}
	r.reportFailure(fmt.Errorf("the agent has asked the hub for the next one, and waits for its decision since %s",
		r.renewal.since.UTC().Format(time.RFC3339)), notAfter)
	return notAfter, r.renewal.done
}

func (r *Rotation) begin(ctx context.Context, notAfter time.Time) *renewal {
	r.Requester.event(corev1.EventTypeNormal, fleet.EventCertificateRotationStarted, "Renew",
		"The client certificate for the hub expires on %s and is renewed", notAfter.Format(time.RFC3339))
	ctx, end := context.WithCancel(ctx)
	next := &renewal{since: r.Clock.Now(), end: end, done: make(chan struct{})}
	go func() {
		defer close(next.done)
		next.certificate, next.key, next.err = r.Requester.Request(ctx)
	}()
	return next
}

// finish saves the certificate of the renewal that is done.
func (r *Rotation) finish(ctx context.Context) error {
	next := r.renewal
	r.abandon()
	if next.err != nil {
		return next.err
	}
	err := r.Store.Update(ctx, func(c hubkubeconfig.Credential) (*hubkubeconfig.Credential, error) {
		c.Certificate, c.Key = next.certificate, next.key
		return &c, nil
	})
	if err != nil {
		return err
	}
	log.FromContext(ctx).Info("Client certificate renewed")
	if renewed, err := r.Store.Load(); err == nil && renewed != nil {
		r.report(renewed)
	}
	return nil
}

// abandon ends the renewal, if one is in progress.
func (r *Rotation) abandon() {
	if r.renewal == nil {
		return
	}
	r.renewal.end()
	<-r.renewal.done
	r.renewal = nil
}

// sleepUntil sleeps until a time, or until the channel is closed. It reports false if the context ended first.
func (r *Rotation) sleepUntil(ctx context.Context, t time.Time, done <-chan struct{}) bool {
	wait := t.Sub(r.Clock.Now())
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := r.Clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-done:
		return ctx.Err() == nil
	case <-timer.C():
		return true
	}
}
