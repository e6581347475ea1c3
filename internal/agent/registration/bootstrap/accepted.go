package bootstrap

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// awaitAccepted waits until the hub has set the ManagedCluster up. An agent that starts to work earlier is refused, and backs off for
// longer than the hub needs. A ManagedCluster that is deleted meanwhile is created again, as its agent still asks, which ends the wait.
func (b *Bootstrap) awaitAccepted(ctx context.Context, hub client.WithWatch) (recreated bool, err error) {
	err = retry.Until(ctx, func(ctx context.Context) (bool, error) {
		accepted, gone, err := watchAccepted(ctx, hub, b.Identity.Cluster)
		if gone {
			recreated, err = b.ensureManagedCluster(ctx, hub)
		}
		return accepted || recreated, err
	})
	return recreated, err
}

// awaitRecreated looks from time to time whether the ManagedCluster is still there, and ends when it had to be created again, or with the
// context. A look that fails says nothing: the bootstrap credential may have expired, and the watch of the request goes on.
func (b *Bootstrap) awaitRecreated(ctx context.Context, hub client.Client) (recreated bool) {
	ended := wait.PollUntilContextCancel(ctx, undecidedCheck, false, func(ctx context.Context) (bool, error) {
		err := hub.Get(ctx, client.ObjectKey{Name: b.Identity.Cluster}, &clusterv1.ManagedCluster{})
		if apierrors.IsNotFound(err) {
			recreated, err = b.ensureManagedCluster(ctx, hub)
		}
		if err != nil {
			log.FromContext(ctx).V(1).Info("Whether the hub still has the ManagedCluster is not known", "reason", err.Error())
		}
		return recreated, nil
	})
	return ended == nil
}

// watchAccepted watches the ManagedCluster until it is accepted, or gone, or the watch ends. Of one that was gone before, a watch has no
// event.
func watchAccepted(ctx context.Context, hub client.WithWatch, cluster string) (accepted, gone bool, err error) {
	selector := fields.OneTermEqualSelector("metadata.name", cluster)
	w, err := hub.Watch(ctx, &clusterv1.ManagedClusterList{}, &client.ListOptions{FieldSelector: selector})
	if err != nil {
		return false, false, fmt.Errorf("watch ManagedCluster %s: %w", cluster, err)
	}
	defer w.Stop()
	gone = true
	for event := range w.ResultChan() {
		mc, ok := event.Object.(*clusterv1.ManagedCluster)
		switch {
		case !ok:
			continue
		case event.Type == watch.Deleted:
			return false, true, nil
		case meta.IsStatusConditionTrue(mc.Status.Conditions, fleet.ConditionHubAccepted):
			return true, false, nil
		}
		gone = false
	}
	return false, gone, nil
}
