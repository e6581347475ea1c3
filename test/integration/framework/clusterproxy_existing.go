package framework

import (
	"testing"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// StartPlacements starts the placement controllers of a hub in an existing cluster.
func StartPlacements(t *testing.T, existing *env.Server) {
	t.Helper()
	placements := env.NewControllers(t, KubeconfigOf(t, existing, fleet.ServiceAccountPlacementController),
		"--leader-election-namespace",
		fleet.NamespaceHub, "--controllers", "placement", "--health-probe-bind-address", "0")
	if err := placements.Start(); err != nil {
		t.Fatal(err)
	}
}
