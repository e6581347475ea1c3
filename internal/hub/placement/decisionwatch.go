package placement

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	scheduler "github.com/capstan-io/capstan/internal/placement"
	"github.com/capstan-io/capstan/internal/placement/decisions"
)

type decisionEvents = handler.TypedFuncs[*clusterv1beta1.PlacementDecision, reconcile.Request]

// decisionSource watches PlacementDecisions for changes by other writers. Of its own writes, the controller only handles deletions, and
// clusters that are listed twice while they move from one object to another; both cost another reconcile. If every write scheduled its
// placement again, the placement would follow the Balance of all others.
func (c *Controller) decisionSource(objects cache.Cache) source.Source {
	return source.Kind(objects, &clusterv1beta1.PlacementDecision{}, decisionEvents{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*clusterv1beta1.PlacementDecision], q queue) {
			if !e.IsInInitialList { // restoreOnce reads those
				c.handleDecision(ctx, objects, q, nil, e.Object)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*clusterv1beta1.PlacementDecision], q queue) {
			c.handleDecision(ctx, objects, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*clusterv1beta1.PlacementDecision], q queue) {
			c.handleDecision(ctx, objects, q, e.Object, nil)
		},
		GenericFunc: func(context.Context, event.TypedGenericEvent[*clusterv1beta1.PlacementDecision], queue) {},
	})
}

// handleDecision enqueues the placements that a change of a PlacementDecision affects. before or after is nil for an object that was
// created or deleted. Placements that the scheduler does not manage are always enqueued: the reconcile restores their decisions. To do
// that here could restore them in the wrong order.
func (c *Controller) handleDecision(ctx context.Context, objects client.Reader, q queue, before, after *clusterv1beta1.PlacementDecision) {
	ch := compareDecisions(before, after)
	if !ch.identity && len(ch.added)+len(ch.removed) == 0 {
		return
	}
	for _, key := range relatedKeys(before, after) {
		if !c.scheduler.Manages(key) {
			enqueue(q, []scheduler.Key{key})
			continue
		}
		own, _, err := decisionsOf(ctx, objects, key, client.UnsafeDisableDeepCopy)
		if err != nil {
			log.FromContext(ctx).Error(err, "Cannot compare a PlacementDecision with what its Placement selects", "placement", key)
			continue
		}
		if c.needsRepair(key, own, ch) {
			enqueue(q, []scheduler.Key{key})
		}
	}
}

// decisionChange is what has changed of a PlacementDecision.
type decisionChange struct {
	after          *clusterv1beta1.PlacementDecision
	identity       bool     // labels or owner have changed, or it was deleted, or created by another writer
	added, removed []string // clusters
}

func compareDecisions(before, after *clusterv1beta1.PlacementDecision) decisionChange {
	ch := decisionChange{after: after, added: clustersOnlyIn(after, before), removed: clustersOnlyIn(before, after)}
	switch {
	case after == nil:
		ch.identity = true
	case before == nil:
		owner := metav1.GetControllerOfNoCopy(after)
		ch.identity = owner == nil || !isPlacement(owner) || owner.Name != decisions.PlacementNameOf(after.Name)
	default:
		ch.identity = !maps.Equal(before.Labels, after.Labels) || !equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences)
	}
	return ch
}

// needsRepair reports whether a change has to be undone or completed: of labels or owner, a missing or additional cluster, or a cluster
// that is listed twice.
func (c *Controller) needsRepair(key scheduler.Key, own []*clusterv1beta1.PlacementDecision, ch decisionChange) bool {
	if ch.identity {
		return true
	}
	elsewhere := ch.listedElsewhere(own)
	return slices.ContainsFunc(ch.added, func(cluster string) bool { return elsewhere[cluster] || !c.scheduler.Selects(key, cluster) }) ||
		slices.ContainsFunc(ch.removed, func(cluster string) bool { return !elsewhere[cluster] && c.scheduler.Selects(key, cluster) })
}

// listedElsewhere says of each cluster that was added or removed whether another object lists it.
func (ch *decisionChange) listedElsewhere(own []*clusterv1beta1.PlacementDecision) map[string]bool {
	elsewhere := make(map[string]bool, len(ch.added)+len(ch.removed))
	for _, cluster := range slices.Concat(ch.added, ch.removed) {
		elsewhere[cluster] = false
	}
	for _, decision := range own {
		if decision.Name == ch.after.Name {
			continue
		}
		for _, d := range decision.Status.Decisions {
			if _, changed := elsewhere[d.ClusterName]; changed {
				elsewhere[d.ClusterName] = true
			}
		}
	}
	return elsewhere
}

// clustersOnlyIn returns the clusters of one that are not in other.
func clustersOnlyIn(one, other *clusterv1beta1.PlacementDecision) (clusters []string) {
	if one == nil {
		return nil
	}
	names := map[string]bool{}
	if other != nil {
		for _, d := range other.Status.Decisions {
			names[d.ClusterName] = true
		}
	}
	for _, d := range one.Status.Decisions {
		if !names[d.ClusterName] {
			clusters = append(clusters, d.ClusterName)
		}
	}
	return clusters
}

// relatedKeys are the placements that a PlacementDecision affects, before and after a change.
func relatedKeys(sides ...*clusterv1beta1.PlacementDecision) (keys []scheduler.Key) {
	for _, decision := range sides {
		if decision == nil {
			continue
		}
		for _, name := range relatedPlacements(decision) {
			if key := (scheduler.Key{Namespace: decision.Namespace, Name: name}); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
