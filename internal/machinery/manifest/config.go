package manifest

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
		if len(found.FeedbackRules) == 0 {
			found.FeedbackRules = c.FeedbackRules
		}
		if len(found.ConditionRules) == 0 {
			found.ConditionRules = c.ConditionRules
		}
	}
	return found
}

// Matches reports whether an entry of manifestConfigs is about the resource: the character * in its namespace and name stands
// for any characters.
func Matches(pattern, resource workv1.ResourceIdentifier) bool {
	return isOfKind(pattern, resource) && matchesWildcard(pattern.Namespace, resource.Namespace) &&
		matchesWildcard(pattern.Name, resource.Name)
}

// isOfKind reports whether an identifier names the group and resource. Users also write the kind or its singular in place of the resource,
// and an apiVersion in place of the group: what can mean nothing else is taken so.
func isOfKind(named, resource workv1.ResourceIdentifier) bool {
	return groupOf(named.Group) == resource.Group && isResource(named.Resource, resource.Resource)
}

// isResource reports whether a name is that of the resource, or a kind or singular of which it is the plural.
func isResource(name, resource string) bool {
	if strings.EqualFold(name, resource) {
		return true
	}
	stem := max(len(name)-1, 0) // the plural of policy is policies
	if len(resource) < stem || !strings.EqualFold(name[:stem], resource[:stem]) {
		return false
	}
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: name})
	return strings.EqualFold(plural.Resource, resource)
}

// version is what is in place of the group in the apiVersion of a core kind.
var version = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// groupOf is the group that a user has named, by itself or in an apiVersion.
func groupOf(named string) string {
	group, _, _ := strings.Cut(named, "/")
	if version.MatchString(group) {
		return ""
	}
	return group
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
