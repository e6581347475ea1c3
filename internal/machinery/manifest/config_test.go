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
	if got.UpdateStrategy.Type != workv1.UpdateStrategyTypeCreateOnly || got.FeedbackRules[0].Type != workv1.WellKnownStatusType ||
		len(got.ConditionRules) != 1 {
		t.Errorf("%+v", got)
	}
	got = ConfigFor(configs, workv1.ResourceIdentifier{Group: "apps", Resource: "statefulsets", Namespace: "default", Name: "web-1"})
	if got.UpdateStrategy.Type != workv1.UpdateStrategyTypeUpdate || got.FeedbackRules != nil || got.ConditionRules != nil {
		t.Errorf("%+v of a resource that no entry names", got)
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
