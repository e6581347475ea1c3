package leaderelection

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// elect is an election as a manager has it, until it has ended.
func elect(ctx context.Context, t *testing.T, lease *fakeLease, lead func(context.Context)) {
	t.Helper()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: renewed(lease), LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true, Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: lead, OnStoppedLeading: func() {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	elector.Run(ctx)
}

// W19 CM-32: a manager that cannot renew its lease learns of that before another process may lead, and does not give it back.
func TestManagerIsCutOff(t *testing.T) {
	t.Parallel()
	for name, lastAnswer := range lastAnswers {
		synctest.Test(t, func(t *testing.T) {
			lease := &fakeLease{}
			elect(t.Context(), t, lease, func(context.Context) {
				<-time.After(time.Minute + time.Nanosecond) // just after a renewal, as it may be
				lease.cutOffAfter(lastAnswer)
			})
			if led := time.Since(lease.written); led >= leaseDuration || lease.holder() != lease.Identity() {
				t.Errorf("%s: it led for %s after its last renewal, and then %q leads", name, led, lease.holder())
			}
		})
	}
}

// W19 CM-32: a manager that ends gives the lease back.
func TestManagerEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lease := &fakeLease{conflict: true}
		ctx, stop := context.WithCancel(t.Context())
		elect(ctx, t, lease, func(context.Context) {
			<-time.After(time.Minute - time.Nanosecond)
			stop()
		})
		if lease.holder() != "" {
			t.Errorf("%q leads", lease.holder())
		}
	})
}

// W19 CM-32: a manager elects with this Lease, and not with one that it makes itself.
func TestForManager(t *testing.T) {
	t.Parallel()
	options := manager.Options{}
	if err := ForManager(&options, &rest.Config{Host: "https://hub.test"}, "hub", "controllers"); err != nil {
		t.Fatal(err)
	}
	lease, ours := options.LeaderElectionResourceLockInterface.(*renewedLease)
	if !options.LeaderElection || !ours || lease.Describe() != "hub/controllers" {
		t.Errorf("it elects: %t, with %v", options.LeaderElection, options.LeaderElectionResourceLockInterface)
	}
}
