package replicaset

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/debounce"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement/decided"
)

// whatStays is what the set keeps while it is not known what a placement selects: see keepPredecessors.
const whatStays = "its works stay as they are, as do those of placements that have left the set or select no cluster"

// readPlacements determines which clusters the placements of a set select. Where that is not known, for example because a Placement
// does not exist, its works stay as they are: the deletion of a Placement must not remove the works of a fleet. So do those of placements
// that have left the set or select no cluster, which it may replace.
func (c *Controller) readPlacements(ctx context.Context, s *snapshot) error {
	absent := map[missing]bool{}
	for _, p := range s.placements {
		if err := c.readDecisions(ctx, s.set.Namespace, p); err != nil {
			return err
		}
		if !p.known() {
			continue
		}
		for _, cluster := range p.deselected() {
			absent[missing{p.Name, cluster}] = true
		}
	}
	since := c.absences.Update(client.ObjectKeyFromObject(s.set), absent, s.now)
	for _, p := range s.placements {
		for cluster := range p.works {
			if p.passed.Keeps(cluster) {
				p.kept[cluster] = true
			}
			gone, found := since[missing{p.Name, cluster}]
			if due := gone.Add(debounce.Delay); found && s.now.Before(due) {
				p.kept[cluster] = true
				s.requeueBy(due)
			}
		}
	}
	return nil
}

func (c *Controller) readDecisions(ctx context.Context, namespace string, p *placement) error {
	key := client.ObjectKey{Namespace: namespace, Name: p.Name}
	found := &clusterv1beta1.Placement{}
	if err := c.client.Get(ctx, key, found, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
		p.reason = fleet.ReasonPlacementDecisionNotFound
		p.message = fmt.Sprintf("Placement %s does not exist in namespace %s: create it, or correct spec.placementRefs; until then %s",
			p.Name, namespace, whatStays)
		return nil
	} else if err != nil {
		return fmt.Errorf("get Placement %s: %w", key, err)
	}
	p.desired = int(ptr.Deref(found.Spec.NumberOfClusters, 0))
	decisions := &clusterv1beta1.PlacementDecisionList{}
	err := c.client.List(ctx, decisions, client.InNamespace(namespace), client.MatchingFields{indexDecisionOf: fleet.LabelValue(p.Name)},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list the PlacementDecisions of Placement %s: %w", key, err)
	}
	if !decided.All(found, decisions.Items) {
		p.reason = fleet.ReasonPlacementDecisionEmpty
		p.message = fmt.Sprintf("Placement %s has not been decided on yet; until then %s", p.Name, whatStays)
		return nil
	}
	p.selected, p.passed, err = c.selected.Clusters(ctx, namespace, decisions.Items)
	return err
}

// deselected returns the clusters that have a work and are not selected, but for those that keep it while they are passed over.
func (p *placement) deselected() []string {
	selected := make(map[string]bool, len(p.selected))
	for _, cluster := range p.selected {
		selected[cluster.Name] = true
	}
	var names []string
	for cluster := range p.works {
		if !selected[cluster] && !p.passed.Keeps(cluster) {
			names = append(names, cluster)
		}
	}
	return names
}

// missing is a cluster that a placement no longer selects.
type missing struct{ placement, cluster string }
