package klusterlet

import (
	"slices"
	"testing"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/rights"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
)

// HC-06: with the rules that the chart of Open Cluster Management has, the operator does without what it may not watch, and without nothing
// else.
func TestRightsOfOtherChart(t *testing.T) {
	t.Parallel()
	reviewer := rightstest.Reviewer{Rules: rightstest.Klusterlet()}
	kinds := func(watches ...rights.Watch) (names []string) {
		missing, err := rights.Missing(t.Context(), reviewer, watches...)
		if err != nil {
			t.Fatal(err)
		}
		if !rights.Watched(missing, operatorv1.GroupVersion.WithKind("Klusterlet")) {
			t.Error("it may not do its task")
		}
		for _, watch := range missing {
			names = append(names, watch.Kind)
		}
		return names
	}
	if got := kinds(append(frame.Watches("operators"), rights.Watch{GroupVersionKind: operatorv1.GroupVersion.WithKind("Klusterlet")},
		rights.Watch{GroupVersionKind: namespaces},
		rights.Watch{GroupVersionKind: configMaps, Name: fleet.ConfigMapHubConnection})...); !slices.Equal(got, []string{"Pod"}) {
		t.Errorf("the manager does without %v", got)
	}
	var all []rights.Watch
	for _, kind := range frame.ManagementKinds(managedKinds()) {
		all = append(all, rights.Watch{GroupVersionKind: kind})
	}
	if got := kinds(all...); !slices.Equal(got, []string{"PodDisruptionBudget", "NetworkPolicy", "Secret"}) {
		t.Errorf("of what is installed, it watches all but %v", got)
	}
}
