package placement

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	scheduler "github.com/capstan-io/capstan/internal/placement"
	"github.com/capstan-io/capstan/internal/placement/decisions"
)

// byPlacement is the index of PlacementDecisions by the placements that they concern: a namespace may have thousands.
const byPlacement = "placement"

// placementOf is the name of the placement that a PlacementDecision is of; empty if it is of none. That is the placement that
// controls it, whatever has become of its labels; if there is none, that of the label by which everybody finds it; and that
// of its name, if nothing else is known of it.
func placementOf(o client.Object) string {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner != nil && isPlacement(owner) {
		return owner.Name
	}
	if name := o.GetLabels()[fleet.LabelPlacement]; name != "" || owner != nil {
		return name
	}
	return decisions.PlacementNameOf(o.GetName())
}

func isPlacement(owner *metav1.OwnerReference) bool {
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == clusterv1beta1.GroupVersion.Group && owner.Kind == "Placement"
}

// relatedPlacements are the names of the placements that have to know of a PlacementDecision: the one that it is of, and the one that
// would give it its name.
func relatedPlacements(o client.Object) (placements []string) {
	of, named := placementOf(o), decisions.PlacementNameOf(o.GetName())
	if of != "" {
		placements = append(placements, of)
	}
	if named != "" && named != of {
		placements = append(placements, named)
	}
	return placements
}

// decisionsOf lists the PlacementDecisions of a placement, and the names it would give that others have taken.
func decisionsOf(ctx context.Context, reader client.Reader, placement scheduler.Key,
	options ...client.ListOption) (own []*clusterv1beta1.PlacementDecision, taken []string, err error) {
	list := &clusterv1beta1.PlacementDecisionList{}
	options = append(options, client.InNamespace(placement.Namespace), client.MatchingFields{byPlacement: placement.Name})
	if err := reader.List(ctx, list, options...); err != nil {
		return nil, nil, fmt.Errorf("list the decisions of Placement %s: %w", placement, err)
	}
	for i := range list.Items {
		if decision := &list.Items[i]; placementOf(decision) == placement.Name {
			own = append(own, decision)
		} else {
			taken = append(taken, decision.Name)
		}
	}
	return own, taken, nil
}

// restorePlacement tells the scheduler what is decided for a placement that it does not decide for. uid is that of the placement: what a
// former one of its name has left is not its own, and about to be deleted. If there is none any more, uid is empty, and its
// decisions count for as long as they are there.
func (c *Controller) restorePlacement(ctx context.Context, placement scheduler.Key, uid types.UID) error {
	own, _, err := decisionsOf(ctx, c.client, placement, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	own = slices.DeleteFunc(own, func(decision *clusterv1beta1.PlacementDecision) bool {
		owner := metav1.GetControllerOfNoCopy(decision)
		return uid != "" && owner != nil && isPlacement(owner) && owner.UID != uid
	})
	c.scheduler.Restore(placement, decisions.GroupsOf(own))
	return nil
}

// restore tells a scheduler what was decided before it was there. Balance and Steady of the first placement need that of
// all.
func restore(ctx context.Context, reader client.Reader, s *scheduler.Scheduler) error {
	list := &clusterv1beta1.PlacementDecisionList{}
	if err := reader.List(ctx, list); err != nil {
		return err
	}
	own := map[scheduler.Key][]*clusterv1beta1.PlacementDecision{}
	for i := range list.Items {
		if name := placementOf(&list.Items[i]); name != "" {
			key := scheduler.Key{Namespace: list.Items[i].Namespace, Name: name}
			own[key] = append(own[key], &list.Items[i])
		}
	}
	for key, objects := range own {
		s.Restore(key, decisions.GroupsOf(objects))
	}
	return nil
}
