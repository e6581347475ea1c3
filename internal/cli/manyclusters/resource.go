package manyclusters

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is what a word means to a cluster.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Singular is the name of one object, as in pod.
	Singular string
}

// Path is where a cluster serves the objects of a namespace, all of them if it is empty.
func (r Resource) Path(namespace, name string) []string {
	segments := []string{"/apis", r.Group, r.Version}
	if r.Group == "" {
		segments = []string{"/api", r.Version}
	}
	if r.Namespaced && namespace != "" {
		segments = append(segments, "namespaces", namespace)
	}
	segments = append(segments, r.Resource)
	if name != "" {
		segments = append(segments, name)
	}
	return segments
}

// String is how kubectl names one object of the resource: deployment.apps.
func (r Resource) String() string {
	if r.Group == "" {
		return r.Singular
	}
	return r.Singular + "." + r.Group
}

// find looks up a word as users write it: the plural or singular name, the kind or a short name, with the group behind it or
// without. What is listed first counts, and names count before short ones. Resources without the verb are none of them; empty is any.
func find(lists []*metav1.APIResourceList, word, verb string) (Resource, bool) {
	name, group, qualified := strings.Cut(strings.ToLower(word), ".")
	for _, matches := range []func(*metav1.APIResource) bool{
		func(r *metav1.APIResource) bool {
			return name == r.Name || name == strings.ToLower(r.Kind) || name != "" && name == r.SingularName
		},
		func(r *metav1.APIResource) bool { return slices.Contains(r.ShortNames, name) },
	} {
		for _, list := range lists {
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil || qualified && !isGroup(gv, group) {
				continue
			}
			for i := range list.APIResources {
				r := &list.APIResources[i]
				if !strings.Contains(r.Name, "/") && (verb == "" || slices.Contains(r.Verbs, verb)) && matches(r) {
					return resourceOf(gv, r), true
				}
			}
		}
	}
	return Resource{}, false
}

// isGroup reports whether a user may mean a version by what is behind the dot: its group, the beginning of it, or the version, too.
func isGroup(gv schema.GroupVersion, text string) bool {
	return text == gv.Group || text == gv.Version+"."+gv.Group || gv.Group == "" && text == gv.Version || strings.HasPrefix(gv.Group, text+".")
}

func resourceOf(gv schema.GroupVersion, r *metav1.APIResource) Resource {
	singular := r.SingularName
	if singular == "" {
		singular = strings.ToLower(r.Kind)
	}
	return Resource{GroupVersionResource: gv.WithResource(r.Name), Kind: r.Kind, Namespaced: r.Namespaced, Singular: singular}
}
