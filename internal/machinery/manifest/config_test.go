package manifest

import (
	"testing"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// WK-10: of several entries that match, the first that has rules of a sort supplies them.
func TestConfigFor(t *testing.T) {
	t.Parallel()
	entry := func(namespace, name string, set func(*workv1.ManifestConfigOption)) workv1.ManifestConfigOption {
		c := workv1.ManifestConfigOption{ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments",
			Namespace: namespace, Name: name}}
		set(&c)
		return c
	}
	configs := []workv1.ManifestConfigOption{
		entry("*", "web-*", func(c *workv1.ManifestConfigOption) { // it has lists without rules
			c.FeedbackRules, c.ConditionRules = []workv1.FeedbackRule{}, []workv1.ConditionRule{}
		}),
		entry("default", "web-*", func(c *workv1.ManifestConfigOption) {
			c.FeedbackRules = []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}}
		}),
		entry("*", "*", func(c *workv1.ManifestConfigOption) {
			c.UpdateStrategy = &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly}
			c.FeedbackRules = []workv1.FeedbackRule{{Type: workv1.JSONPathsType}}
		}),
		entry("default", "web-1", func(c *workv1.ManifestConfigOption) {
			c.UpdateStrategy = &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly}
			c.ConditionRules = []workv1.ConditionRule{{Condition: "Complete"}}
		}),
	}
	got := ConfigFor(configs, workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: "default", Name: "web-1"})
	if got.UpdateStrategy.Type != workv1.UpdateStrategyTypeCreateOnly || len(got.FeedbackRules) != 1 ||
		got.FeedbackRules[0].Type != workv1.WellKnownStatusType || len(got.ConditionRules) != 1 {
		t.Errorf("%+v", got)
	}
	got = ConfigFor(configs, workv1.ResourceIdentifier{Group: "apps", Resource: "statefulsets", Namespace: "default", Name: "web-1"})
	if got.UpdateStrategy.Type != workv1.UpdateStrategyTypeUpdate || got.FeedbackRules != nil || got.ConditionRules != nil {
		t.Errorf("%+v of a resource that no entry names", got)
	}
}

// WK-10, WK-12: an identifier that names the kind, its singular or an apiVersion, in any case, means what it plainly says, in
// manifestConfigs and in orphaning rules.
func TestIdentifiers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		group, resource   string // as a user names them
		isGroup, isPlural string // as the API has them
		want              bool
	}{
		{"", "configmaps", "", "configmaps", true},
		{"", "configmap", "", "configmaps", true},
		{"", "ConfigMap", "", "configmaps", true},
		{"", "ConfigMaps", "", "configmaps", true},
		{"v1", "configmaps", "", "configmaps", true},
		{"apps/v1", "Deployment", "apps", "deployments", true},
		{"apps", "deployment", "apps", "deployments", true},
		{"networking.k8s.io/v1", "NetworkPolicy", "networking.k8s.io", "networkpolicies", true},
		{"networking.k8s.io", "ingress", "networking.k8s.io", "ingresses", true},
		{"", "endpoints", "", "endpoints", true},
		{"example.com/v1beta1", "Widget", "example.com", "widgets", true},
		{"", "secrets", "", "configmaps", false},
		{"", "deployments", "apps", "deployments", false},
		{"apps", "configmaps", "", "configmaps", false},
		{"", "", "", "configmaps", false},
		{"v1.example.com", "widgets", "", "widgets", false},
	} {
		named := workv1.ResourceIdentifier{Group: test.group, Resource: test.resource, Namespace: "default", Name: "web"}
		is := workv1.ResourceIdentifier{Group: test.isGroup, Resource: test.isPlural, Namespace: "default", Name: "web"}
		if got := Matches(named, is); got != test.want {
			t.Errorf("a manifestConfig of %q in %q is about %q in %q: %t", test.resource, test.group, test.isPlural, test.isGroup, got)
		}
		orphan := &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
			SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{{
				Group: named.Group, Resource: named.Resource, Namespace: named.Namespace, Name: named.Name}}}}
		if got := !IsOwned(orphan, workv1.UpdateStrategyTypeUpdate, is); got != test.want {
			t.Errorf("an orphaning rule of %q in %q is about %q in %q: %t", test.resource, test.group, test.isPlural, test.isGroup, got)
		}
	}
}

// WK-10: wildcards in namespaces and names.
func TestWildcards(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pattern, text string
		want          bool
	}{
		{"*", "", true}, {"*", "any", true}, {"", "", true}, {"", "a", false},
		{"web", "web", true}, {"web", "web1", false}, {"web*", "web", true}, {"*web", "my-web", true}, {"*web", "web2", false},
		{"a*b*c", "abc", true}, {"a*b*c", "a-b-b-c", true}, {"a*b*c", "acb", false}, {"a*a", "a", false}, {"a**a", "aa", true},
		{"a.c", "abc", false}, {"a?c", "abc", false},
	} {
		if got := matchesWildcard(test.pattern, test.text); got != test.want {
			t.Errorf("%q matches %q: %t", test.pattern, test.text, got)
		}
	}
}
