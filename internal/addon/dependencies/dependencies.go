// Package dependencies orders the add-ons of a cluster (gap A4): an add-on is deployed after those that it needs, and
// removed before them. It is an extension, and pure.
//
// What an add-on needs is in the annotation capstan.io/depends-on of its ClusterManagementAddOn: names of other add-ons,
// with commas between. The hub copies it to the ManagedClusterAddOns, so that it is still known while the
// ClusterManagementAddOn is being deleted, or is gone.
package dependencies

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/fleet"
)

// Of lists the add-ons that an object says its add-on needs, sorted. Pass the ClusterManagementAddOn, the
// ManagedClusterAddOn or both. An add-on does not wait for itself.
func Of(objects ...metav1.Object) []string {
	var names []string
	for _, object := range objects {
		for name := range strings.SplitSeq(object.GetAnnotations()[fleet.AnnotationDependsOn], ",") {
			if name = strings.TrimSpace(name); name != "" && name != object.GetName() {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Validate says what is wrong with the annotation of an add-on of the name.
func Validate(path *field.Path, addOn, annotation string) (errs field.ErrorList) {
	if annotation == "" {
		return nil
	}
	for name := range strings.SplitSeq(annotation, ",") {
		name = strings.TrimSpace(name)
		switch problems := validation.IsDNS1123Subdomain(name); {
		case name == addOn:
			errs = append(errs, field.Invalid(path, annotation, "an add-on cannot wait for itself: name other add-ons"))
		case len(problems) > 0:
			errs = append(errs, field.Invalid(path, annotation, fmt.Sprintf(
				"%q is not the name of an add-on (%s): write names of ClusterManagementAddOns with commas between, such as one,two", name, problems[0])))
		}
	}
	return errs
}

// Missing lists those of the needed add-ons that are not available on a cluster, given all add-ons on it. An add-on is
// not deployed before there are none; one that is deployed stays when what it needs fails.
func Missing(needs []string, onCluster []addonv1beta1.ManagedClusterAddOn) (missing []string) {
	available := map[string]bool{}
	for i := range onCluster {
		addOn := &onCluster[i]
		available[addOn.Name] = addOn.DeletionTimestamp.IsZero() && meta.IsStatusConditionTrue(addOn.Status.Conditions, fleet.ConditionAvailable)
	}
	for _, name := range needs {
		if !available[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

// Dependents lists those add-ons that need the named one, of all that are on a cluster. It is not removed from there
// before there are none. Those that need each other do not wait for each other: they would for ever.
func Dependents(name string, onCluster []addonv1beta1.ManagedClusterAddOn) (dependents []string) {
	needs := make(map[string][]string, len(onCluster))
	for i := range onCluster {
		needs[onCluster[i].Name] = Of(&onCluster[i])
	}
	for i := range onCluster {
		if other := onCluster[i].Name; other != name && slices.Contains(needs[other], name) && !reaches(needs, name, other) {
			dependents = append(dependents, other)
		}
	}
	slices.Sort(dependents)
	return dependents
}

// Cycle is a way along which an add-on needs itself, from it to it: a, b, a. It is empty if there is none. Such add-ons
// would wait for each other for ever.
func Cycle(name string, needs func(addOn string) []string) []string {
	seen := map[string]bool{}
	var follow func(way []string) []string
	follow = func(way []string) []string {
		for _, next := range needs(way[len(way)-1]) {
			if next == name {
				return append(way, next)
			}
			if seen[next] {
				continue
			}
			seen[next] = true
			if cycle := follow(append(slices.Clone(way), next)); cycle != nil {
				return cycle
			}
		}
		return nil
	}
	return follow([]string{name})
}

// reaches tells whether one add-on needs another, if only by way of others.
func reaches(needs map[string][]string, from, to string) bool {
	seen := map[string]bool{from: true}
	for open := []string{from}; len(open) > 0; {
		next := open[0]
		open = open[1:]
		for _, name := range needs[next] {
			if name == to {
				return true
			}
			if !seen[name] {
				seen[name] = true
				open = append(open, name)
			}
		}
	}
	return false
}
