package bootstrap

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
