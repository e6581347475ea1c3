package options

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/managedclustersets"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// ClusterChoice chooses clusters by their names, a placement, a cluster set, or all.
type ClusterChoice struct {
	// All chooses all clusters that the hub has accepted.
	All bool

	global     *Global
	clusters   ClusterFlags
	placement  string
	clusterSet string
}

// Add adds the flags to a command.
func (f *ClusterChoice) Add(global *Global, command *cobra.Command) {
	f.global = global
	f.clusters.Add(global, command)
	flags := command.Flags()
	flags.StringVar(&f.placement, "placement", "", "the clusters that this placement has selected, as NAMESPACE/NAME")
	flags.StringVar(&f.clusterSet, "clusterset", "", "the members of this cluster set")
	flags.BoolVar(&f.All, "all-clusters", false, "all clusters that the hub has accepted")
	for _, exclusive := range [][]string{{"placement", "clusterset"}, {"placement", "clusters"}, {"placement", "cluster"},
		{"clusterset", "clusters"}, {"clusterset", "cluster"}, {"all-clusters", "placement"}, {"all-clusters", "clusterset"},
		{"all-clusters", "clusters"}, {"all-clusters", "cluster"}} {
		command.MarkFlagsMutuallyExclusive(exclusive...)
	}
	Complete(command, "placement", global.CompletePlacementRef)
	Complete(command, "clusterset", global.CompleteClusterSets)
}

// Chosen reports whether one of the flags is there.
func (f *ClusterChoice) Chosen() bool {
	return f.clusters.one != "" || len(f.clusters.many) > 0 || f.placement != "" || f.clusterSet != "" || f.All
}

// Choose returns the clusters. Without one of the flags it is an error.
func (f *ClusterChoice) Choose(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
	ctx, cancel := f.global.Limited(ctx)
	defer cancel()
	switch {
	case f.placement != "":
		ref, err := ParsePlacementRef("--placement", f.placement)
		if err != nil {
			return nil, err
		}
		decisions, err := ReadDecisions(ctx, hub, *ref)
		if err != nil {
			return nil, err
		}
		return f.global.EligibleToRead(ctx, hub, decisions)
	case f.clusterSet != "":
		return membersOf(ctx, hub, f.clusterSet)
	case f.All:
		return acceptedClusters(ctx, hub)
	}
	return f.clusters.Required()
}

// acceptedClusters are the names of all clusters that the hub has accepted.
func acceptedClusters(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
	list, err := managedclusters.List(ctx, hub, "")
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].Spec.HubAcceptsClient {
			names = append(names, list.Items[i].Name)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("the hub has accepted no clusters: \"capstan get clusters\" shows those that wait, and " +
			"\"capstan accept --clusters CLUSTER,...\" accepts them")
	}
	return names, nil
}

// membersOf are the names of the clusters of a set.
func membersOf(ctx context.Context, hub *hubapi.Hub, name string) ([]string, error) {
	set, err := managedclustersets.Get(ctx, hub, name)
	if err != nil {
		return nil, err
	}
	selector, err := managedcluster.SetSelector(set)
	if err != nil {
		return nil, fmt.Errorf("cluster set %s: %w", name, err)
	}
	list, err := managedclusters.List(ctx, hub, selector.String())
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("cluster set %s has no clusters: \"capstan clusterset set %s --clusters CLUSTER,...\" puts some into it", name, name)
	}
	return hubapi.ObjectNames(list.Items), nil
}
