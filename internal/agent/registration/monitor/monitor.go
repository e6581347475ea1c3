// Package monitor notices that an agent cannot work with its hub any more: the hub refuses the agent's certificate, or, where there
// are other hubs to turn to, it denies the cluster or does not answer.
package monitor

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Reason says why an agent cannot work with its hub any more.
type Reason string

// The reasons.
const (
	// Refused: the hub does not know the certificate, which is still valid by its dates.
	Refused Reason = "Refused"
	// Denied: the hub does not accept the cluster any more.
	Denied Reason = "Denied"
	// Gone: the hub has not answered for longer than the timeout.
	Gone Reason = "Gone"
)

// LostError is how a Monitor ends.
type LostError struct {
	Reason  Reason
	message string
}

func (e *LostError) Error() string { return e.message }

const (
	// persistence is how long a hub has to refuse the agent before the agent acts on it. A hub that is starting may refuse it
	// for a moment.
	persistence = 10 * time.Second
	// refusalInterval is the time between two checks of a hub that refuses the agent.
	refusalInterval = 2 * time.Second
	// The time between two checks where there are several hubs is a part of the timeout, within bounds.
	checksPerTimeout = 5
	longestInterval  = 10 * time.Second
	// stoppedAfter is the time between two checks after which, with several hubs, the agent itself has not run: the wait and the answer take
	// no longer than longestInterval each. In that time there is no request to the hub.
	stoppedAfter = 3 * longestInterval
)

// Monitor watches the connection to one hub. It is a manager's Runnable.
type Monitor struct {
	hub       client.Reader
	cluster   string
	timeout   time.Duration
	clock     clock.Clock
	requested chan struct{}

	answered, refusing, checked time.Time
	// hidden is since when the only hub has not shown the cluster to its agent; zero if it does.
	hidden time.Time
	logged bool
}

// New returns a Monitor that checks a hub through a client without a cache. timeout is for how long a hub may be silent where
// there are several; zero means that there is one, for which the agent waits without end.
func New(hub client.Reader, cluster string, timeout time.Duration, clk clock.Clock) *Monitor {
	return &Monitor{hub: hub, cluster: cluster, timeout: timeout, clock: clk, requested: make(chan struct{}, 1)}
}

// CheckNow makes the monitor check the hub at once. Controllers call it when the hub refuses them, or a request fails.
func (m *Monitor) CheckNow() {
	select {
	case m.requested <- struct{}{}:
	default:
	}
}

// Start checks the hub until the context ends. It returns a *LostError when the agent cannot work with the hub any more.
func (m *Monitor) Start(ctx context.Context) error {
	m.start()
	for m.wait(ctx) {
		if err := m.check(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *Monitor) start() {
	m.answered = m.clock.Now()
	m.checked = m.answered
}

// wait reports false if the context ended first.
func (m *Monitor) wait(ctx context.Context) bool {
	var again <-chan time.Time
	if pause := m.pause(); pause > 0 {
		timer := m.clock.NewTimer(pause)
		defer timer.Stop()
		again = timer.C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-m.requested:
	case <-again:
	}
	return true
}

// pause is the time until the next check; zero waits for CheckNow.
func (m *Monitor) pause() time.Duration {
	switch {
	case !m.refusing.IsZero():
		return refusalInterval
	case m.timeout > 0:
		return min(m.timeout/checksPerTimeout, longestInterval)
	}
	return 0
}

func (m *Monitor) check(ctx context.Context) error {
	checkCtx, cancel := context.WithTimeout(ctx, longestInterval)
	defer cancel()
	cluster := &clusterv1.ManagedCluster{}
	err := m.hub.Get(checkCtx, client.ObjectKey{Name: m.cluster}, cluster)
	now := m.clock.Now()
	if now.Sub(m.checked) > stoppedAfter {
		m.answered, m.refusing = now, time.Time{}
	}
	m.checked = now
	switch {
	case ctx.Err() != nil:
		return nil
	case apierrors.IsUnexpectedServerError(err): // whatever its code: a proxy has answered, and the hub has not
	case apierrors.IsUnauthorized(err):
		return m.persistent(now, &LostError{Reason: Refused,
			message: "the hub does not accept the client certificate: the cluster may have been " +
				"deleted and created again, or cut off, or the hub set up again, or trust another certificate authority now"})
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		m.answered = now
		if m.timeout == 0 {
			m.refusing = time.Time{} // with one hub there is no other to turn to, and it knows the certificate
			m.logHidden(ctx, now, err)
			return nil
		}
		return m.persistent(now, &LostError{Reason: Denied, message: fmt.Sprintf("the hub does not know cluster %s any more", m.cluster)})
	}
	m.refusing = time.Time{}
	if err != nil {
		return m.silent(ctx, now, err)
	}
	m.answered, m.hidden, m.logged = now, time.Time{}, false
	if m.timeout > 0 && Denies(cluster) {
		return &LostError{Reason: Denied, message: fmt.Sprintf("the hub does not accept cluster %s any more", m.cluster)}
	}
	return nil
}

// Denies reports whether an administrator has denied a cluster. One that no administrator has decided upon yet is not denied.
func Denies(cluster *clusterv1.ManagedCluster) bool {
	return !cluster.Spec.HubAcceptsClient && meta.FindStatusCondition(cluster.Status.Conditions, fleet.ConditionHubAccepted) != nil
}

// persistent returns the error once the hub has refused the agent for long enough.
func (m *Monitor) persistent(now time.Time, lost *LostError) error {
	if m.refusing.IsZero() {
		m.refusing = now
	}
	if now.Sub(m.refusing) < persistence {
		return nil
	}
	return lost
}

// logHidden logs once that the only hub does not show the agent its cluster. When it has just accepted it, it may not do so for a moment.
func (m *Monitor) logHidden(ctx context.Context, now time.Time, err error) {
	if m.hidden.IsZero() {
		m.hidden = now
	}
	if m.logged || now.Sub(m.hidden) < persistence {
		return
	}
	m.logged = true
	log.FromContext(ctx).Info("The hub does not show the agent its cluster: it may have been deleted or cut off there, or have joined after "+
		"the backup that the hub was restored from; see on the hub whether it has the cluster", "cluster", m.cluster,
		"command", "kubectl get managedcluster "+m.cluster, "reason", err.Error())
}

func (m *Monitor) silent(ctx context.Context, now time.Time, err error) error {
	silence := now.Sub(m.answered)
	if m.timeout == 0 {
		return nil
	}
	if silence < m.timeout {
		log.FromContext(ctx).V(1).Info("The hub does not answer", "since", silence.Round(time.Second).String(), "timeout", m.timeout.String(),
			"reason", err.Error())
		return nil
	}
	return &LostError{Reason: Gone, message: fmt.Sprintf("the hub has not answered for %s: %v", silence.Round(time.Second), err)}
}
