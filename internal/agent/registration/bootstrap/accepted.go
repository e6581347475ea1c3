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

// awaitAccepted watches the ManagedCluster until the hub has set it up. An agent that starts to work earlier is refused,
// and backs off for longer than the hub needs.
func awaitAccepted(ctx context.Context, hub client.WithWatch, cluster string) error {
	selector := fields.OneTermEqualSelector("metadata.name", cluster)
	return retry.Until(ctx, func(ctx context.Context) (bool, error) {
		w, err := hub.Watch(ctx, &clusterv1.ManagedClusterList{}, &client.ListOptions{FieldSelector: selector})
		if err != nil {
			return false, fmt.Errorf("watch ManagedCluster %s: %w", cluster, err)
		}
		defer w.Stop()
		for event := range w.ResultChan() {
			mc, ok := event.Object.(*clusterv1.ManagedCluster)
			if ok && event.Type != watch.Deleted && meta.IsStatusConditionTrue(mc.Status.Conditions, fleet.ConditionHubAccepted) {
				return true, nil
			}
		}
		return false, nil
	})
}
