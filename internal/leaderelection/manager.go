package leaderelection

import (
	"context"
	"fmt"
	"time"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// ForManager has a manager run what is for one process at a time while it holds the Lease. The manager gives it back when all that it
// runs has ended. One that could not renew it ends with an error, and its process has to end with it.
func ForManager(options *manager.Options, config *rest.Config, namespace, name string) error {
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	leases, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("prepare the election of a leader: %w", err)
	}
	lock, err := Lock(leases, namespace, name)
	if err != nil {
		return err
	}
	options.LeaderElection, options.LeaderElectionID, options.LeaderElectionNamespace = true, name, namespace
	options.LeaderElectionResourceLockInterface = renewed(lock)
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = new(leaseDuration), new(renewDeadline), new(retryPeriod)
	options.LeaderElectionReleaseOnCancel = true
	return nil
}

// renewedLease is a Lease about which its holder sends no requests any more once it has not been renewed for renewDeadline. An elector
// gives back also a lease that it could not renew, and says only then that it leads no more: without an answer, after the lease has ended.
type renewedLease struct {
	resourcelock.Interface
	// renewed is when this process asked for what it holds; zero if it has never led.
	renewed time.Time
}

func renewed(lock resourcelock.Interface) *renewedLease {
	return &renewedLease{Interface: inTime{lock}}
}

// Get implements resourcelock.Interface.
func (l *renewedLease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.isLost() {
		return nil, nil, ErrLost
	}
	return l.Interface.Get(ctx)
}

// Create implements resourcelock.Interface.
func (l *renewedLease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (l *renewedLease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Update(ctx, record) })
}

func (l *renewedLease) write(record resourcelock.LeaderElectionRecord, write func() error) error {
	if l.isLost() {
		return ErrLost
	}
	asked := time.Now()
	if err := write(); err != nil {
		return err
	}
	if record.HolderIdentity == l.Identity() {
		l.renewed = asked
	}
	return nil
}

func (l *renewedLease) isLost() bool {
	return !l.renewed.IsZero() && time.Since(l.renewed) >= renewDeadline
}
