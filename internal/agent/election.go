package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// How long a leader that is not heard of keeps its lease, how long it tries to renew it before it gives up, and how often.
// A leader that stops gives the lease back at once (gap W19).
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// elects tells whether several replicas may run as this agent, so that one of them has to be the one that acts. They share an
// identity through the Secret; an agent that keeps it in files is the only one of its kind.
func (a *Agent) elects() bool { return a.HubKubeconfigSecret != "" && !a.DisableLeaderElection }

// lock is the name of the Lease, in the agent's namespace. Registration and work beside each other do not compete.
func (p Parts) lock() string {
	switch {
	case !p.Work:
		return "registration-agent-lock"
	case !p.Registration:
		return "work-agent-lock"
	}
	return "klusterlet-agent-lock"
}

// asLeader calls act once this replica leads, and fails when another one leads instead: the process then has to end, and the
// next one waits its turn.
func (a *Agent) asLeader(ctx context.Context, act func(context.Context) error) error {
	if !a.elects() {
		return act(ctx)
	}
	leases, err := coordinationv1client.NewForConfig(a.management)
	if err != nil {
		return fmt.Errorf("make a client for the election of a leader: %w", err)
	}
	log.FromContext(ctx).Info("Waiting to lead the replicas of this agent", "namespace", a.Namespace, "lease", a.parts.lock())
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name this replica: %w", err)
	}
	return lead(ctx, &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: a.Namespace, Name: a.parts.lock()},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}, act)
}

// lead is asLeader by a lock.
func lead(ctx context.Context, lock resourcelock.Interface, act func(context.Context) error) error {
	// The lease is given back after the last act, so the election outlives the context.
	electing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	acted := make(chan error, 1)
	var leads atomic.Bool
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		// An elector that gives the lease back does so before it stops the act, also of a lease that it could not renew: another
		// replica would lead before a cluster that does not answer has let it.
		ReleaseOnCancel: false,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				leads.Store(true)
				acting, stop := context.WithCancel(leading)
				defer stop()
				defer context.AfterFunc(ctx, stop)()
				acted <- act(acting)
				end()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("prepare the election of a leader: %w", err)
	}
	stop := context.AfterFunc(ctx, func() {
		if !leads.Load() {
			end()
		}
	})
	defer stop()
	elector.Run(electing)
	lost := electing.Err() == nil
	if leads.Load() || elector.IsLeader() { // if it ends just as it begins to lead, it is yet to act
		err = <-acted
	}
	if elector.IsLeader() && !lost {
		giveBack(context.WithoutCancel(ctx), lock)
	}
	if err == nil && ctx.Err() == nil {
		err = errors.New("this replica of the agent does not lead any more: it could not renew its Lease in time")
	}
	return err
}

// giveBack lets another replica lead at once. One that cannot be told finds out by itself, after leaseDuration.
func giveBack(ctx context.Context, lock resourcelock.Interface) {
	ctx, cancel := context.WithTimeout(ctx, renewDeadline)
	defer cancel()
	// The last renewal may still be under way on the server.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		held, _, err := lock.Get(ctx)
		if err != nil || held.HolderIdentity != lock.Identity() {
			return err
		}
		now := metav1.Now()
		return lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: held.LeaderTransitions, LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now,
		})
	})
	if err != nil {
		log.FromContext(ctx).Error(err, "The Lease could not be given back; another replica leads when it ends", "lease", lock.Describe(), "after", leaseDuration.String())
	}
}
