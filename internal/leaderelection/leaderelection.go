// Package leaderelection runs a function in one of several processes at a time: the one that holds a Lease.
package leaderelection

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

// How long a leader that renews it no longer keeps its lease, how long it tries to renew it before it gives up, and how often.
// A leader that stops gives the lease back at once.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// ErrLost says that the leader could not renew its lease in time, so that another one may lead.
var ErrLost = errors.New("the Lease could not be renewed in time")

// Lock is a Lease that this process may hold, under a name of its own.
func Lock(leases coordinationv1client.LeasesGetter, namespace, name string) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name this process for the election of a leader: %w", err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}, nil
}

// candidate knows that it leads as soon as it has written so into the Lease. The callbacks of an elector come later.
type candidate struct {
	resourcelock.Interface
	leads atomic.Bool
}

// Create implements resourcelock.Interface.
func (c *candidate) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.written(record, c.Interface.Create(ctx, record))
}

// Update implements resourcelock.Interface.
func (c *candidate) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.written(record, c.Interface.Update(ctx, record))
}

func (c *candidate) written(record resourcelock.LeaderElectionRecord, err error) error {
	if err == nil && record.HolderIdentity == c.Identity() {
		c.leads.Store(true)
	}
	return err
}

// result is how what the leader does has ended: with an error of its own, or because the lease was lost.
type result struct {
	err  error
	lost bool
}

// Lead calls act once this process leads, and returns what act does. The context of act ends with that of Lead, or before
// another process may lead; if act then has no error, Lead returns ErrLost. The lease is given back when act has ended, and not
// before. Lead returns nil if its context ends while another process leads.
func Lead(ctx context.Context, lock resourcelock.Interface, act func(context.Context) error) error {
	// The lease is given back after the act, so the election outlives the context.
	electing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	self := &candidate{Interface: inTime{lock}}
	acted := make(chan result, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: self, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		// An elector that gives the lease back does so before it stops the act, also of a lease that it could not renew: another
		// process would lead before a cluster that does not answer has let it.
		ReleaseOnCancel: false,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				defer end()
				acting, stop := context.WithCancel(leading)
				defer stop()
				defer context.AfterFunc(ctx, stop)()
				err := act(acting)
				acted <- result{err: err, lost: leading.Err() != nil && electing.Err() == nil}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("prepare the election of a leader: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		if !self.leads.Load() {
			end()
		}
	})()
	elector.Run(electing)
	if !self.leads.Load() {
		return nil
	}
	how := <-acted
	if !how.lost {
		giveBack(context.WithoutCancel(ctx), lock)
	} else if how.err == nil {
		return ErrLost
	}
	return how.err
}

// giveBack lets another process lead at once. One that cannot be told finds out by itself, after leaseDuration.
func giveBack(ctx context.Context, lock resourcelock.Interface) {
	ctx, cancel := context.WithTimeout(ctx, renewDeadline)
	defer cancel()
	// The last renewal may still be under way on the server.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		record, _, err := lock.Get(ctx)
		if err != nil || record.HolderIdentity != lock.Identity() {
			return err
		}
		now := metav1.Now()
		return lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now,
		})
	})
	if err != nil {
		log.FromContext(ctx).Error(err, "The Lease could not be given back; another process leads when it ends", "lease", lock.Describe(),
			"after", leaseDuration.String())
	}
}
