package admission

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// mostWarnings is how many manifests, or rules, are warned of: an API server sends a client no more than 4 KiB of warnings.
const mostWarnings = 10

// ManifestWorkWarnings returns warnings for the user who creates a valid ManifestWork (old is nil) or changes its spec: what agents leave
// out of its manifests, because it is another cluster's, and which rules are about none of them.
func ManifestWorkWarnings(work, old *workv1.ManifestWork) (warnings []string) {
	if old != nil && equality.Semantic.DeepEqual(work.Spec, old.Spec) {
		return nil
	}
	objects := make([]*unstructured.Unstructured, 0, len(work.Spec.Workload.Manifests))
	for _, m := range work.Spec.Workload.Manifests {
		object := &unstructured.Unstructured{}
		if json.Unmarshal(m.Raw, &object.Object) != nil {
			return nil // the rules refuse it
		}
		objects = append(objects, object)
	}
	if old == nil || !equality.Semantic.DeepEqual(work.Spec.Workload, old.Spec.Workload) {
		warnings = append(atMostWarnings(ofExports(objects), "manifests"), atMostWarnings(ofOwners(objects), "manifests")...)
	}
	return append(warnings, atMostWarnings(ofRules(work, objects), "rules")...)
}

// atMostWarnings replaces warnings that are too many by how many there are.
func atMostWarnings(warnings []string, of string) []string {
	if more := len(warnings) - mostWarnings; more > 0 {
		return append(warnings[:mostWarnings], fmt.Sprintf("the same holds for %d more %s", more, of))
	}
	return warnings
}

// ofExports are about manifests that were exported from a cluster. It drops what it warns of from the objects.
func ofExports(objects []*unstructured.Unstructured) (warnings []string) {
	for i, object := range objects {
		if dropped := manifest.DropExported(object); len(dropped) > 0 {
			warnings = append(warnings, fmt.Sprintf("%s, %s: not applied, because the cluster that it was exported from has set it: %s",
				field.NewPath("spec", "workload", "manifests").Index(i), manifest.Identify(object), strings.Join(dropped, ", ")))
		}
	}
	return warnings
}

// ofOwners are about manifests that name owners: the hub does not know which objects a cluster has.
func ofOwners(objects []*unstructured.Unstructured) (warnings []string) {
	for i, object := range objects {
		if len(object.GetOwnerReferences()) > 0 {
			warnings = append(warnings, fmt.Sprintf("%s, %s: metadata.ownerReferences: owners that do not exist on the cluster under their uid "+
				"are not applied", field.NewPath("spec", "workload", "manifests").Index(i), manifest.Identify(object)))
		}
	}
	return warnings
}

// ofRules are about manifestConfigs and orphaning rules that fit no manifest. Which resource a kind has is for the cluster to know; the hub
// goes by how resources are usually named, and leaves kinds of custom resources alone.
func ofRules(work *workv1.ManifestWork, objects []*unstructured.Unstructured) (warnings []string) {
	resources := make([]workv1.ResourceIdentifier, len(objects))
	for i, object := range objects {
		gvk := object.GroupVersionKind()
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		resources[i] = workv1.ResourceIdentifier{Group: gvk.Group, Resource: plural.Resource, Namespace: object.GetNamespace(),
			Name: object.GetName()}
	}
	check := func(path *field.Path, rule workv1.ResourceIdentifier) {
		fits := func(r workv1.ResourceIdentifier) bool {
			if isCustomGroup(r.Group) {
				r.Resource = rule.Resource
			}
			return manifest.Matches(rule, r)
		}
		if slices.ContainsFunc(resources, fits) {
			return
		}
		warnings = append(warnings, fmt.Sprintf("%s: no manifest of this work is of %s%s", path, describeRule(rule),
			nearest(rule, resources, objects)))
	}
	for i := range work.Spec.ManifestConfigs {
		check(field.NewPath("spec", "manifestConfigs").Index(i).Child("resourceIdentifier"), work.Spec.ManifestConfigs[i].ResourceIdentifier)
	}
	if option := work.Spec.DeleteOption; option != nil && option.SelectivelyOrphan != nil {
		path := field.NewPath("spec", "deleteOption", "selectivelyOrphans", "orphaningRules")
		for i, r := range option.SelectivelyOrphan.OrphaningRules {
			check(path.Index(i), workv1.ResourceIdentifier{Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name})
		}
	}
	return warnings
}

// isCustomGroup tells whether a group may have kinds with resources of any name.
func isCustomGroup(group string) bool {
	return strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
}

func describeRule(rule workv1.ResourceIdentifier) string {
	resource := schema.GroupResource{Group: rule.Group, Resource: rule.Resource}.String()
	if rule.Namespace == "" {
		return fmt.Sprintf("%s %s", resource, rule.Name)
	}
	return fmt.Sprintf("%s %s/%s", resource, rule.Namespace, rule.Name)
}

// nearest names the manifest that a rule may mean; nothing if none has the kind or the name.
func nearest(rule workv1.ResourceIdentifier, resources []workv1.ResourceIdentifier, objects []*unstructured.Unstructured) string {
	best, most := -1, 0
	anyOfKind := workv1.ResourceIdentifier{Group: rule.Group, Resource: rule.Resource, Namespace: "*", Name: "*"}
	for i, r := range resources {
		alike := 0
		if manifest.Matches(anyOfKind, r) {
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
	return fmt.Sprintf("; the nearest is manifest %d, %s", best, manifest.Identify(objects[best]))
}
