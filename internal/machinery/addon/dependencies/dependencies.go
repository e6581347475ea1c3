// Package dependencies orders the add-ons of a cluster: an add-on is deployed after those that it needs, and
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
	"github.com/capstan-io/capstan/internal/machinery/fleet"
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
				"%q is not the name of an add-on (%s): write names of ClusterManagementAddOns with commas between, such as one,two", name,
				problems[0])))
		}
	}
	return errs
}

// Missing returns the add-ons that the named one needs and that are not available on a cluster, given all add-ons on it. The named
// add-on is deployed when there are none; later failures of those that it needs do not remove it. Add-ons that need each other do not
// wait for each other, which would never end.
func Missing(name string, needs []string, onCluster []addonv1beta1.ManagedClusterAddOn) (missing []string) {
	all, available := needsOf(onCluster), map[string]bool{}
	for i := range onCluster {
		addOn := &onCluster[i]
		available[addOn.Name] = addOn.DeletionTimestamp.IsZero() && meta.IsStatusConditionTrue(addOn.Status.Conditions, fleet.ConditionAvailable)
	}
	for _, need := range needs {
		if !available[need] && !reaches(all, need, name) {
			missing = append(missing, need)
		}
	}
	return missing
}

// Dependents returns the add-ons on a cluster that need the named one, which is not removed before them. Add-ons that need each other
// do not wait for each other.
func Dependents(name string, onCluster []addonv1beta1.ManagedClusterAddOn) (dependents []string) {
	needs := needsOf(onCluster)
	for i := range onCluster {
		if other := onCluster[i].Name; other != name && slices.Contains(needs[other], name) && !reaches(needs, name, other) {
			dependents = append(dependents, other)
		}
	}
	slices.Sort(dependents)
	return dependents
}

func needsOf(addOns []addonv1beta1.ManagedClusterAddOn) map[string][]string {
	needs := make(map[string][]string, len(addOns))
	for i := range addOns {
		needs[addOns[i].Name] = Of(&addOns[i])
	}
	return needs
}

// reaches reports whether one add-on needs another, directly or indirectly.
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
