package manifest

import (
	"testing"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// WK-09 WK-12: what is orphaned, and what is only read, is not owned.
func TestIsOwned(t *testing.T) {
	t.Parallel()
	resource := workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "default", Name: "kept"}
	rule := func(set func(*workv1.OrphaningRule)) *workv1.DeleteOption {
		r := workv1.OrphaningRule{Resource: "configmaps", Namespace: "default", Name: "kept"}
		set(&r)
		return &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
			SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{r}}}
	}
	same := func(*workv1.OrphaningRule) {}
	otherPolicy := rule(same)
	otherPolicy.PropagationPolicy = "Other"
	foreground := rule(same)
	foreground.PropagationPolicy = workv1.DeletePropagationPolicyTypeForeground
	for name, test := range map[string]struct {
		option   *workv1.DeleteOption
		strategy workv1.UpdateStrategyType
		want     bool
	}{
		"no option":    {nil, workv1.UpdateStrategyTypeUpdate, true},
		"read only":    {nil, workv1.UpdateStrategyTypeReadOnly, false},
		"created only": {nil, workv1.UpdateStrategyTypeCreateOnly, true},
		"foreground":   {foreground, workv1.UpdateStrategyTypeUpdate, true},
		"orphan": {&workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan},
			workv1.UpdateStrategyTypeUpdate, false},
		"orphaned":       {rule(same), workv1.UpdateStrategyTypeUpdate, false},
		"unknown policy": {otherPolicy, workv1.UpdateStrategyTypeUpdate, false},
		"selective, no rules": {&workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan},
			workv1.UpdateStrategyTypeUpdate, true},
		"another group":        {rule(func(r *workv1.OrphaningRule) { r.Group = "apps" }), workv1.UpdateStrategyTypeUpdate, true},
		"another resource":     {rule(func(r *workv1.OrphaningRule) { r.Resource = "secrets" }), workv1.UpdateStrategyTypeUpdate, true},
		"another namespace":    {rule(func(r *workv1.OrphaningRule) { r.Namespace = "*" }), workv1.UpdateStrategyTypeUpdate, true},
		"a name, not a prefix": {rule(func(r *workv1.OrphaningRule) { r.Name = "kep*" }), workv1.UpdateStrategyTypeUpdate, true},
	} {
		if got := IsOwned(test.option, test.strategy, resource); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// WK-12 WK-32: Foreground together with something else may be what the API server has filled in.
func TestNamesForeground(t *testing.T) {
	t.Parallel()
	const foreground = workv1.DeletePropagationPolicyTypeForeground
	for name, test := range map[string]struct {
		option *workv1.DeleteOption
		want   bool
	}{
		"no option":  {nil, false},
		"foreground": {&workv1.DeleteOption{PropagationPolicy: foreground}, true},
		"orphan":     {&workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}, false},
		"a TTL":      {&workv1.DeleteOption{PropagationPolicy: foreground, TTLSecondsAfterFinished: new(int64(0))}, false},
		"rules":      {&workv1.DeleteOption{PropagationPolicy: foreground, SelectivelyOrphan: &workv1.SelectivelyOrphan{}}, false},
	} {
		if got := NamesForeground(test.option); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
