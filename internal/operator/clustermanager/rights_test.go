package clustermanager

import (
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/rights"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
)

// HC-02: with the rules that the chart of Open Cluster Management has, the operator does without what it may not watch, and without nothing
// else.
func TestRightsOfOtherChart(t *testing.T) {
	t.Parallel()
	reviewer := rightstest.Reviewer{Rules: rightstest.ClusterManager()}
	kinds := func(watches ...rights.Watch) (names []string) {
		missing, err := rights.Missing(t.Context(), reviewer, watches...)
		if err != nil {
			t.Fatal(err)
		}
		if !rights.Watched(missing, operatorv1.GroupVersion.WithKind("ClusterManager")) {
			t.Error("it may not do its task")
		}
		for _, watch := range missing {
			names = append(names, watch.Kind)
		}
		return names
	}
	want := []string{"Pod"}
	own := rights.Watch{GroupVersionKind: operatorv1.GroupVersion.WithKind("ClusterManager")}
	if got := kinds(append(frame.Watches("operators"), own)...); !slices.Equal(got, want) {
		t.Errorf("the manager does without %v", got)
	}
	var all []rights.Watch
	for _, kind := range frame.ManagementKinds(hubKinds()) {
		all = append(all, rights.Watch{GroupVersionKind: kind})
	}
	want = []string{"PodDisruptionBudget", "NetworkPolicy", "Secret", "ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"}
	if got := kinds(all...); !slices.Equal(got, want) {
		t.Errorf("of what is installed, it watches all but %v", got)
	}
}

// HC-02: with the rules of that chart, these are all the rules that the components do without.
func TestComponentsWithRightsOfOtherChart(t *testing.T) {
	t.Parallel()
	enable := func(names ...string) (gates []operatorv1.FeatureGate) {
		for _, name := range names {
			gates = append(gates, operatorv1.FeatureGate{Feature: name, Mode: operatorv1.FeatureGateModeTypeEnable})
		}
		return gates
	}
	p := planOf(func(cm *operatorv1.ClusterManager) {
		cm.Spec.RegistrationConfiguration = &operatorv1.RegistrationHubConfiguration{FeatureGates: enable("ClusterProfile", "ClusterImporter"),
			RegistrationDrivers: []operatorv1.RegistrationDriverHub{{AuthType: operatorv1.RegistrationAuthTypeGRPC}}}
		cm.Spec.AddOnManagerConfiguration = &operatorv1.AddOnManagerConfiguration{FeatureGates: enable("GitOpsCluster")}
		cm.Spec.PlacementConfiguration = &operatorv1.PlacementConfiguration{FeatureGates: enable("SIGPlacementDecision")}
	}, nil)
	got := map[string][]string{}
	for _, object := range p.hub {
		var rules []rbacv1.PolicyRule
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			rules = role.Rules
		case *rbacv1.Role:
			rules = role.Rules
		}
		name := strings.TrimPrefix(object.GetName(), "open-cluster-management:cluster-manager-")
		_, missing := rights.Grantable(rightstest.ClusterManager(), rules)
		for _, rule := range missing {
			got[name] = append(got[name], rule.Resources[0]+": "+strings.Join(rule.Verbs, " "))
		}
	}
	want := map[string][]string{
		"registration:controller": {"managedclusters: delete"},
		"placement:controller":    {"placements: create"},
		"work:rollback":           {"secrets: get delete"},
		"addon-manager:controller": {"managedserviceaccounts: get list watch delete", "managedserviceaccounts/status: patch",
			"clusterpermissions: get list watch", "clusterpermissions/status: patch", "clusterpermissions/finalizers: update"},
		"applications:controller": {"applications: get list watch patch",
			"multiclusterapplicationsetreports: get list watch create patch delete"},
		"sigplacementdecision:controller": {"placementdecisions: get list watch create patch delete"},
	}
	if !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("they do without %v, want %v", got, want)
	}
}
