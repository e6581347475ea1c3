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

// byPlacement is the index of PlacementDecisions by relatedPlacements. A namespace may have thousands of them.
const byPlacement = "placement"

// placementOf returns the name of the placement that a PlacementDecision belongs to; empty for none. This is its controller; without one,
// the placement in its label; without a label, the placement that it is named after.
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

// relatedPlacements are the names of the placements that a PlacementDecision affects: the one that it belongs to, and the one that it is
// named after, which cannot use its name.
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

// decisionsOf lists the PlacementDecisions of a placement, and those names of its scheme that objects of other owners have.
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

// restorePlacement passes the stored decisions of a placement to the scheduler. uid is that of the placement: decisions of a former
// placement of the same name are left out, as they are about to be deleted. If the placement does not exist, uid is empty, and its
// decisions count for as long as they exist.
func (c *Controller) restorePlacement(ctx context.Context, placement scheduler.Key, uid types.UID) error {
	own, _, err := decisionsOf(ctx, c.client, placement, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	c.scheduler.Restore(placement, decisions.GroupsOf(ofPlacement(own, uid)))
	return nil
}

// ofPlacement leaves out, in place, the decisions of a former placement of the same name: those of another UID, unless uid is empty.
func ofPlacement(own []*clusterv1beta1.PlacementDecision, uid types.UID) []*clusterv1beta1.PlacementDecision {
	return slices.DeleteFunc(own, func(decision *clusterv1beta1.PlacementDecision) bool {
		owner := metav1.GetControllerOfNoCopy(decision)
		return uid != "" && owner != nil && isPlacement(owner) && owner.UID != uid
	})
}

// restore passes all stored decisions to a scheduler. To schedule the first placement, Balance and Steady need the decisions of all.
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
