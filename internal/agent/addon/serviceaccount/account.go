package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// reconcileAccount keeps the service account and the token of one ManagedServiceAccount, and reports. It requeues it until the token is
// due, and makes no requests before that if nothing has changed.
func (c *Controller) reconcileAccount(ctx context.Context, s *session, name string) (ctrl.Result, error) {
	owner := &authenticationv1beta1.ManagedServiceAccount{}
	key := client.ObjectKey{Namespace: c.Cluster, Name: name}
	err := s.hub.Get(ctx, key, owner)
	if apierrors.IsNotFound(err) || err == nil && !owner.DeletionTimestamp.IsZero() {
		c.mu.Lock()
		delete(c.renewed, name)
		delete(c.settled, name)
		c.mu.Unlock()
		return ctrl.Result{}, c.removeAccount(ctx, s, name)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get ManagedServiceAccount %s: %w", key, err)
	}
	current, err := c.versionsOf(ctx, s, owner)
	if err != nil {
		return ctrl.Result{}, err
	}
	if due, waits := c.waits(name, current); waits {
		return c.until(due), nil
	}
	before := owner.DeepCopy()
	token, renewed, err := c.keep(ctx, s, owner)
	if retryable(err) {
		return ctrl.Result{RequeueAfter: firstRetry}, nil
	}
	c.record(owner, token, renewed, err)
	changed, failed := patch.Status(ctx, c.Uncached, owner, before)
	if changed && failed == nil {
		c.recordEvent(owner, before, renewed, err)
	}
	if apierrors.IsConflict(failed) {
		return ctrl.Result{RequeueAfter: firstRetry}, nil
	}
	if err := errors.Join(err, client.IgnoreNotFound(failed)); err != nil {
		return ctrl.Result{}, err
	}
	if renewed == "" && !changed {
		c.mu.Lock()
		c.settled[name] = settled{current, earliest(token.due(), c.Clock.Now().Add(reviewInterval))}
		c.mu.Unlock()
	}
	return c.until(token.due()), nil
}

// reviewInterval is how often the cluster is asked whether it still accepts a token: that ends without an event when its keys are replaced.
const reviewInterval = time.Hour

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// settled is what a pass that has changed nothing has found, and until when there is nothing to do if it stays so.
type settled struct {
	versions
	due time.Time
}

// versions are those of what an account depends on: resource versions of what the caches have, which are empty for what is not there, and
// the certificate authority of the cluster.
type versions struct{ owner, secret, account, ca string }

func (c *Controller) versionsOf(ctx context.Context, s *session, owner *authenticationv1beta1.ManagedServiceAccount) (versions, error) {
	secret, account := &corev1.Secret{}, &corev1.ServiceAccount{}
	key := client.ObjectKeyFromObject(owner)
	if err := s.hub.Get(ctx, key, secret); client.IgnoreNotFound(err) != nil {
		return versions{}, fmt.Errorf("get Secret %s on the hub: %w", key, err)
	}
	key.Namespace = s.namespace
	if err := s.managed.Get(ctx, key, account); client.IgnoreNotFound(err) != nil {
		return versions{}, fmt.Errorf("get service account %s on the managed cluster: %w", key, err)
	}
	ca, _ := c.ca() // keep reports why it cannot be read
	return versions{owner.ResourceVersion, secret.ResourceVersion, account.ResourceVersion, string(ca)}, nil
}

// waits reports whether nothing has changed since a pass that has changed nothing, and the token is not due yet.
func (c *Controller) waits(name string, current versions) (due time.Time, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := c.settled[name]
	return last.due, known && last.versions == current && c.Clock.Now().Before(last.due)
}

// until requeues for when a token is due.
func (c *Controller) until(due time.Time) ctrl.Result {
	return ctrl.Result{RequeueAfter: max(min(due.Add(afterDue).Sub(c.Clock.Now()), retry.LongestTimer), firstRetry)}
}

// retryable reports whether something has changed since the cache was read, of which it learns in a moment.
func retryable(err error) bool { return apierrors.IsConflict(err) }

// keep returns the token that the Secret on the hub has, and why it was replaced, if it was. One that it has been replaced by may have a
// problem, too.
func (c *Controller) keep(ctx context.Context, s *session, owner *authenticationv1beta1.ManagedServiceAccount,
) (token claims, renewed string, err error) {
	w := requirements{owner: owner, validity: owner.Spec.Rotation.Validity.Duration}
	if w.account, err = c.ensureAccount(ctx, s.namespace, owner); err != nil {
		return token, "", err
	}
	if w.ca, err = c.ca(); err != nil {
		return token, "", err
	}
	secret := &corev1.Secret{}
	switch err := s.hub.Get(ctx, client.ObjectKeyFromObject(owner), secret); {
	case apierrors.IsNotFound(err):
		secret = nil
	case err != nil:
		return token, "", fmt.Errorf("get Secret %s on the hub: %w", client.ObjectKeyFromObject(owner), err)
	}
	why, token := w.stale(secret, c.Clock.Now())
	if why == "" {
		valid, err := c.isValid(ctx, secret.Data[corev1.ServiceAccountTokenKey])
		if err != nil || valid {
			return token, "", err
		}
		if err := c.mayRenew(owner.Name); err != nil {
			return token, "", err
		}
		why = "the managed cluster does not take the token any more"
	} else if err := c.checkClock(owner.Name, token); err != nil {
		return token, "", err
	}
	fresh, err := c.newToken(ctx, w)
	if err != nil {
		return token, "", err
	}
	if token, err = parse(fresh); err != nil {
		return token, "", fmt.Errorf("the managed cluster has issued a token that cannot be read: %w", err)
	}
	c.mu.Lock()
	c.renewed[owner.Name] = renewal{at: c.Clock.Now(), token: token}
	c.mu.Unlock()
	if err := c.saveToken(ctx, w, secret, fresh); err != nil {
		return token, "", err
	}
	return token, why, c.checkClock(owner.Name, token)
}

// mayRenew fails if the last token is very young: a cluster that takes none of its own tokens would get request after request.
func (c *Controller) mayRenew(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Clock.Since(c.renewed[name].at) < lastRetry {
		return errors.New("the managed cluster does not take a token that it has just issued; another one is requested in a minute")
	}
	return nil
}

// checkClock fails if a token is due to be replaced, although it is very young: by a clock that is ahead of that of the cluster, all of its
// tokens are, and the cluster would get request after request.
func (c *Controller) checkClock(name string, token claims) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, last := c.Clock.Now(), c.renewed[name]
	if token != last.token || now.Sub(last.at) >= lastRetry || now.Before(token.due()) {
		return nil
	}
	return fmt.Errorf("a token that the managed cluster has just issued is due to be replaced: the clock of the agent is %s ahead of that of "+
		"the cluster, and the token is valid for %s; set the clocks, or a longer spec.rotation.validity; another token is requested in a minute",
		last.at.Sub(token.issued).Round(time.Second), token.expires.Sub(token.issued))
}

// record sets the status. A token that has just been saved counts, whether or not there is a problem.
func (c *Controller) record(owner *authenticationv1beta1.ManagedServiceAccount, token claims, renewed string, err error) {
	now := c.Clock.Now()
	set := func(condition metav1.Condition) {
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&owner.Status.Conditions, condition)
	}
	if err != nil {
		set(metav1.Condition{Type: fleet.ConditionTokenReported, Status: metav1.ConditionFalse, Reason: fleet.ReasonTokenReportFailed,
			Message: explain(err).Error()})
	} else {
		set(metav1.Condition{Type: fleet.ConditionTokenReported, Status: metav1.ConditionTrue, Reason: fleet.ReasonTokenReported})
	}
	if err != nil && renewed == "" {
		return
	}
	set(metav1.Condition{Type: fleet.ConditionSecretCreated, Status: metav1.ConditionTrue, Reason: fleet.ReasonSecretCreated})
	owner.Status.ExpirationTimestamp = &metav1.Time{Time: token.expires}
	if refreshed := owner.Status.TokenSecretRef; renewed == "" && refreshed != nil && refreshed.Name == owner.Name {
		return
	}
	owner.Status.TokenSecretRef = &authenticationv1beta1.SecretRef{Name: owner.Name, LastRefreshTimestamp: metav1.NewTime(token.issued)}
}

// explain adds what to do about an error that the managed cluster or the hub has refused something with.
func explain(err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w: the agent of the cluster has no right to; give it the rights that the documentation of managed service accounts lists", err)
}

// recordEvent writes an event of what has changed.
func (c *Controller) recordEvent(owner, before *authenticationv1beta1.ManagedServiceAccount, renewed string, err error) {
	switch {
	case err != nil:
		c.Recorder.Eventf(owner, nil, corev1.EventTypeWarning, fleet.EventTokenReportFailed, "RequestToken", "%s", explain(err).Error())
	case renewed == "":
	case before.Status.TokenSecretRef == nil:
		c.Recorder.Eventf(owner, nil, corev1.EventTypeNormal, fleet.EventTokenCreated, "RequestToken",
			"The Secret %s has a token, which expires at %s", owner.Name, expiry(owner))
	default:
		c.Recorder.Eventf(owner, nil, corev1.EventTypeNormal, fleet.EventTokenRefreshed, "RequestToken",
			"The Secret %s has a new token, which expires at %s: %s", owner.Name, expiry(owner), renewed)
	}
}

func expiry(owner *authenticationv1beta1.ManagedServiceAccount) string {
	return owner.Status.ExpirationTimestamp.UTC().Format(time.RFC3339)
}
