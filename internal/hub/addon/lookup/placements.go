package lookup

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement/decided"
	"github.com/capstan-io/capstan/internal/rollout"
)

// Placement is a placement of an install strategy, with what it selects.
type Placement struct {
	addonv1beta1.PlacementStrategy
	// Unknown is why it is not known what the placement selects; empty if it is known.
	Unknown string
	// Selected are the selected clusters, in the state ToApply.
	Selected []rollout.Cluster
	// PassedOver are clusters in its decisions that must not be acted on.
	PassedOver decided.PassedOver
	// ClustersPerDecisionGroup is the size of the Placement's decision groups, if it is set.
	ClustersPerDecisionGroup *intstr.IntOrString
}

// Placements returns the placements of an install strategy, in its order. There are none unless the strategy has the type Placements.
func Placements(ctx context.Context, r selected.Reader, strategy addonv1beta1.InstallStrategy) (placements []*Placement, err error) {
	if strategy.Type != addonv1beta1.InstallStrategyPlacements {
		return nil, nil
	}
	for _, given := range strategy.Placements {
		placement := &Placement{PlacementStrategy: given}
		if err := placement.read(ctx, r); err != nil {
			return nil, err
		}
		placements = append(placements, placement)
	}
	return placements, nil
}

func (p *Placement) read(ctx context.Context, r selected.Reader) error {
	key, found := client.ObjectKey{Namespace: p.Namespace, Name: p.Name}, &clusterv1beta1.Placement{}
	if err := r.Client.Get(ctx, key, found); apierrors.IsNotFound(err) {
		p.Unknown = fmt.Sprintf("Placement %s does not exist: create it, or correct spec.installStrategy.placements; "+
			"until then nothing is removed from its clusters", key)
		return nil
	} else if err != nil {
		return fmt.Errorf("get Placement %s: %w", key, err)
	}
	if size := found.Spec.DecisionStrategy.GroupStrategy.ClustersPerDecisionGroup; size != (intstr.IntOrString{}) {
		p.ClustersPerDecisionGroup = &size
	}
	decisions := &clusterv1beta1.PlacementDecisionList{}
	err := r.Client.List(ctx, decisions, client.InNamespace(p.Namespace), client.MatchingFields{indexDecisionOf: fleet.LabelValue(p.Name)},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list the PlacementDecisions of Placement %s: %w", key, err)
	}
	if !decided.All(found, decisions.Items) {
		p.Unknown = fmt.Sprintf("Placement %s has not been decided on yet; until then nothing is removed from its clusters", key)
		return nil
	}
	p.Selected, p.PassedOver, err = r.Clusters(ctx, p.Namespace, decisions.Items)
	return err
}

// Decisive maps each selected cluster to the placement that applies: the last one that selects it.
func Decisive(placements []*Placement) map[string]*Placement {
	decisive := map[string]*Placement{}
	for _, placement := range placements {
		for _, cluster := range placement.Selected {
			decisive[cluster.Name] = placement
		}
	}
	return decisive
}

// Keeps reports whether a placement selects a cluster that is passed over for a moment, and keeps what it has.
func Keeps(placements []*Placement, cluster string) bool {
	return slices.ContainsFunc(placements, func(p *Placement) bool { return p.PassedOver.Keeps(cluster) })
}

// AllResolved reports whether it is known for all placements what they select.
func AllResolved(placements []*Placement) bool { return Unresolved(placements, nil) == nil }

// Unresolved returns the first placement of which it is not known what it selects, and which might therefore be the decisive one of a
// cluster, in the place of the placement that applies there now: a later one, or any if none applies. It returns nil if there is no such
// placement.
func Unresolved(placements []*Placement, applies *Placement) *Placement {
	for _, placement := range placements[slices.Index(placements, applies)+1:] {
		if placement.Unknown != "" {
			return placement
		}
	}
	return nil
}
