package hub

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/rights"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
)

// HC-02: controllers that may not list what only they watch are left out, with the rules that permit it; the others of the process stay.
func TestSwitchOffDenied(t *testing.T) {
	t.Parallel()
	const all = "ClusterProfile=true,GitOpsCluster=true,SIGPlacementDecision=true"
	other := rightstest.ClusterManager() // of ours, it has those for ClusterProfiles alone
	for name, test := range map[string]struct {
		group, gates string
		rules        []rbacv1.PolicyRule
		denied       []string
		on           []string
	}{
		"placement": {group: "placement", gates: all, rules: other, denied: []string{"placementdecisions"},
			on: []string{"ClusterProfile", "GitOpsCluster"}},
		"placement without gate": {group: "placement", rules: other},
		"registration": {group: "registration", gates: all, rules: other,
			on: []string{"ClusterProfile", "GitOpsCluster", "SIGPlacementDecision"}},
		"registration without rights": {group: "registration", gates: all, denied: []string{"clusterprofiles"},
			on: []string{"GitOpsCluster", "SIGPlacementDecision"}},
		"add-ons": {group: "addon", gates: all, rules: other, denied: []string{"multiclusterapplicationsetreports"},
			on: []string{"ClusterProfile", "SIGPlacementDecision"}},
		"add-ons with rights": {group: "addon", gates: all, rules: []rbacv1.PolicyRule{{APIGroups: []string{"apps.open-cluster-management.io"},
			Resources: []string{"multiclusterapplicationsetreports"}, Verbs: []string{"list", "watch"}}},
			on: []string{"ClusterProfile", "GitOpsCluster", "SIGPlacementDecision"}},
	} {
		o := Options{Groups: []string{test.group}, Gates: set(t, test.gates)}
		denied, err := o.SwitchOffDenied(t.Context(), rightstest.Reviewer{Rules: test.rules})
		if err != nil {
			t.Fatal(err)
		}
		if len(denied) != len(test.denied) {
			t.Errorf("%s: denied are %v, want %v", name, denied, test.denied)
		}
		for i, rule := range rights.Rules(denied) {
			if want := "resources: [" + test.denied[i] + "], verbs: [list, watch]}"; !strings.HasSuffix(rule, want) {
				t.Errorf("%s: the rule is %s, want %s", name, rule, want)
			}
		}
		var on []string
		for _, gated := range gatedKinds {
			if o.enabled(gated.gate) {
				on = append(on, string(gated.gate))
			}
		}
		if !slices.Equal(on, test.on) {
			t.Errorf("%s: on are %v, want %v", name, on, test.on)
		}
	}
}

// Who cannot find out what is permitted does not start: it would have to guess.
func TestSwitchOffDeniedWithoutAnswer(t *testing.T) {
	t.Parallel()
	o := Options{Groups: []string{"placement"}, Gates: set(t, "SIGPlacementDecision=true")}
	if _, err := o.SwitchOffDenied(t.Context(), noAnswer{}); err == nil || !strings.Contains(err.Error(), "may watch placementdecisions") {
		t.Errorf("%v", err)
	}
}

type noAnswer struct{ rights.Reviewer }

func (noAnswer) Create(context.Context, *authorizationv1.SelfSubjectAccessReview, metav1.CreateOptions) (
	*authorizationv1.SelfSubjectAccessReview, error,
) {
	return nil, errors.New("no route")
}
