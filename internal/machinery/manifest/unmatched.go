package manifest

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// Unmatched says of each manifestConfig and orphaning rule of a ManifestWork that is about none of its manifests what it names, and which
// manifest is the nearest. A rule for all names may be about none: it is meant for several works. at is where the spec is. A manifest
// without a resource, whose kind is not known, may be about any of its group.
func Unmatched(at *field.Path, spec *workv1.ManifestWorkSpec, manifests []workv1.ManifestResourceMeta) (unmatched []string) {
	m := newMatcher(manifests)
	check := func(path *field.Path, rule workv1.ResourceIdentifier) {
		if rule.Name != "*" && !m.matches(rule) {
			unmatched = append(unmatched, fmt.Sprintf("%s: no manifest of this work is of %s%s", path, nameOfRule(rule), m.nearest(rule)))
		}
	}
	for i := range spec.ManifestConfigs {
		check(at.Child("manifestConfigs").Index(i).Child("resourceIdentifier"), spec.ManifestConfigs[i].ResourceIdentifier)
	}
	if option := spec.DeleteOption; option != nil && option.SelectivelyOrphan != nil {
		path := at.Child("deleteOption", "selectivelyOrphans", "orphaningRules")
		for i, r := range option.SelectivelyOrphan.OrphaningRules {
			check(path.Index(i), workv1.ResourceIdentifier{Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name})
		}
	}
	return unmatched
}

// matcher finds the manifests that rules are about.
type matcher struct {
	manifests []workv1.ManifestResourceMeta
	// exact are the names of the manifests: a work may have as many rules as manifests, most of which name one of them.
	exact map[workv1.ResourceIdentifier]struct{}
}

func newMatcher(manifests []workv1.ManifestResourceMeta) *matcher {
	m := &matcher{manifests: manifests, exact: make(map[workv1.ResourceIdentifier]struct{}, len(manifests))}
	for _, r := range manifests {
		m.exact[identifierOf(r)] = struct{}{}
	}
	return m
}

func (m *matcher) matches(rule workv1.ResourceIdentifier) bool {
	if _, exact := m.exact[rule]; exact {
		return true
	}
	for _, r := range m.manifests {
		if Matches(rule, asNamed(r, rule)) {
			return true
		}
	}
	return false
}

// nearest names the manifest that a rule may mean; nothing if none has the kind or the name.
func (m *matcher) nearest(rule workv1.ResourceIdentifier) string {
	best, most := -1, 0
	for i, r := range m.manifests {
		alike := 0
		if isOfKind(rule, asNamed(r, rule)) {
			alike += 2
		}
		if r.Name == rule.Name {
			alike++
		}
		if alike > most {
			best, most = i, alike
		}
	}
	if best < 0 {
		return ""
	}
	r := m.manifests[best]
	return fmt.Sprintf("; the nearest is manifest %d, %s", best, Identity{
		GroupVersionKind: schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}, Namespace: r.Namespace, Name: r.Name,
	})
}

func identifierOf(r workv1.ManifestResourceMeta) workv1.ResourceIdentifier {
	return workv1.ResourceIdentifier{Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name}
}

// asNamed is what a manifest is about; one of which the resource is not known has that of the rule.
func asNamed(r workv1.ManifestResourceMeta, rule workv1.ResourceIdentifier) workv1.ResourceIdentifier {
	if r.Resource == "" {
		r.Resource = rule.Resource
	}
	return identifierOf(r)
}

// nameOfRule says what a rule is about, such as "deployments.apps default/web".
func nameOfRule(rule workv1.ResourceIdentifier) string {
	resource := schema.GroupResource{Group: rule.Group, Resource: rule.Resource}.String()
	return fmt.Sprintf("%s %s", resource, strings.TrimPrefix(rule.Namespace+"/"+rule.Name, "/"))
}
