package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	// kubernetesControllersLease is by which one of several hubs on the same etcd runs the Kubernetes controllers.
	kubernetesControllersLease = "capstan-hub-kubernetes-controllers"

	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// runElected runs while this process holds the lease, and gives it away when run has ended: not before, and not later
// because that failed. Losing it ends the hub: what runs cannot be trusted to stop in time otherwise.
func (h *hub) runElected(ctx context.Context, run func(context.Context) error) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: kubernetesControllersLease},
		Client:     h.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}
	ended := make(chan error, 1)
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: kubernetesControllersLease,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				defer stop()
				running, cancel := context.WithCancel(ctx)
				defer cancel()
				defer context.AfterFunc(leading, cancel)()
				ended <- run(running)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("elect who runs the Kubernetes controllers: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		if !elector.IsLeader() {
			stop()
		}
	})()
	elector.Run(electing)
	select {
	case err := <-ended:
		return err
	default:
	}
	if ctx.Err() == nil {
		return errors.New("another hub on the same etcd took over the Kubernetes controllers, because this one could not renew its lease in time")
	}
	return nil
}
