package controlplane

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/leaderelection"
)

// kubernetesControllersLease is by which one of several hubs on the same etcd runs the Kubernetes controllers.
const kubernetesControllersLease = "capstan-hub-kubernetes-controllers"

// runElected runs while this process holds the lease, and gives it away when run has ended. Losing it ends the hub: what runs
// cannot be trusted to stop in time otherwise.
func (h *hub) runElected(ctx context.Context, run func(context.Context) error) error {
	lock, err := leaderelection.Lock(h.client.CoordinationV1(), metav1.NamespaceSystem, kubernetesControllersLease)
	if err != nil {
		return err
	}
	err = leaderelection.Lead(ctx, lock, run)
	if errors.Is(err, leaderelection.ErrLost) {
		return fmt.Errorf("another hub on the same etcd may take over the Kubernetes controllers from this one: %w", err)
	}
	return err
}
