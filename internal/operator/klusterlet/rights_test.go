package klusterlet

import (
	"maps"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

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

// MS-02: in all modes, the agent may keep service accounts, and take over those that others have made, in the namespace of add-ons alone.
func TestRightsToServiceAccounts(t *testing.T) {
	t.Parallel()
	want := map[string][]string{fleet.NamespaceAgentAddOn: {"get", "list", "watch", "create", "patch", "delete"}}
	for _, mode := range modes {
		got := map[string][]string{}
		for _, object := range planFor(layoutOf(klusterletWith(mode)), plainInputs).managed {
			role, is := object.(*rbacv1.Role)
			if !is {
				continue
			}
			for _, rule := range role.Rules {
				if slices.Contains(rule.Resources, "serviceaccounts") {
					got[role.Namespace] = append(got[role.Namespace], rule.Verbs...)
				}
			}
		}
		if !maps.EqualFunc(got, want, slices.Equal[[]string]) {
			t.Errorf("%s: the agent may %v, want %v", mode, got, want)
		}
	}
}
