package hub

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/featuregate"

	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/rights"
)

// gatedKinds are the kinds that controllers behind a feature gate watch, and no others do.
var gatedKinds = []struct {
	gate     featuregate.Feature
	resource schema.GroupVersionResource
	kind     string
}{
	{featuregates.ClusterProfile, clusterProfiles, "ClusterProfile"},
	{featuregates.GitOpsCluster, applicationSetReports, "MulticlusterApplicationSetReport"},
	{featuregates.SIGPlacementDecision, sigPlacementDecisions, "PlacementDecision"},
}

// SwitchOffDenied switches off the feature gates whose controllers may not watch what they are for: a cache that may not list a kind is
// never filled, and ends the other controllers of the process, too. It returns the watches that are not permitted.
func (o Options) SwitchOffDenied(ctx context.Context, reviewer rights.Reviewer) (denied []rights.Watch, err error) {
	for _, gated := range gatedKinds {
		if !o.enabled(gated.gate) || !o.reads(gated.resource) {
			continue
		}
		watch := rights.Watch{GroupVersionKind: gated.resource.GroupVersion().WithKind(gated.kind)}
		missing, err := rights.Missing(ctx, reviewer, watch)
		if err != nil {
			return nil, err
		}
		if len(missing) == 0 {
			continue
		}
		if err := o.Gates.SetFromMap(map[string]bool{string(gated.gate): false}); err != nil {
			return nil, err
		}
		denied = append(denied, watch)
	}
	return denied, nil
}
