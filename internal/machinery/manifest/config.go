package manifest

import (
	"strings"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// Config is what the manifestConfigs of a ManifestWork say about one resource. Its zero value is what they say about a
// resource that none of them names.
type Config struct {
	// UpdateStrategy is never of an empty type: without one, it is Update.
	UpdateStrategy workv1.UpdateStrategy
	FeedbackRules  []workv1.FeedbackRule
	ConditionRules []workv1.ConditionRule
}

// ConfigFor merges the entries that match the resource: of each sort of rules, those of the first entry that has any apply. The
// character * in the namespace and name of an entry stands for any characters.
func ConfigFor(configs []workv1.ManifestConfigOption, resource workv1.ResourceIdentifier) Config {
	found := Config{UpdateStrategy: workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeUpdate}}
	hasStrategy := false
	for i := range configs {
		c := &configs[i]
		if !Matches(c.ResourceIdentifier, resource) {
			continue
		}
		if !hasStrategy && c.UpdateStrategy != nil && c.UpdateStrategy.Type != "" {
			found.UpdateStrategy, hasStrategy = *c.UpdateStrategy, true
		}
		if found.FeedbackRules == nil {
			found.FeedbackRules = c.FeedbackRules
		}
		if found.ConditionRules == nil {
			found.ConditionRules = c.ConditionRules
		}
	}
	return found
}

// Matches tells whether an entry of manifestConfigs is about the resource: the character * in its namespace and name stands
// for any characters.
func Matches(pattern, resource workv1.ResourceIdentifier) bool {
	return pattern.Group == resource.Group && pattern.Resource == resource.Resource &&
		matchesWildcard(pattern.Namespace, resource.Namespace) && matchesWildcard(pattern.Name, resource.Name)
}

// matchesWildcard takes the earliest place for each piece between wildcards, which leaves the most room for the rest.
func matchesWildcard(pattern, text string) bool {
	pieces := strings.Split(pattern, "*")
	if len(pieces) == 1 {
		return pattern == text
	}
	first, last := pieces[0], pieces[len(pieces)-1]
	rest, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	for _, piece := range pieces[1 : len(pieces)-1] {
		_, after, found := strings.Cut(rest, piece)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, last)
}
