package workload

import (
	"cmp"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/ownership"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Unwritten returns the condition for a work of an add-on that could not be written or deleted.
func Unwritten(owner types.NamespacedName, w client.Object, why error) metav1.Condition {
	switch of, _ := ownership.Parse(w.GetName(), owner); {
	case of.Hook:
		return falseCondition(fleet.ConditionHookManifestCompleted, fleet.ReasonHookManifestIsNotCompleted,
			"The add-on stays until its pre-delete hooks are done. They could not be brought to the cluster: "+why.Error())
	case of.Hosting:
		return falseCondition(fleet.ConditionHostingManifestApplied, fleet.ReasonManifestWorkApplyFailed, why.Error())
	default:
		return falseCondition(fleet.ConditionManifestApplied, fleet.ReasonManifestWorkApplyFailed, why.Error())
	}
}

// work is an existing work. It is never changed.
type work struct {
	*workv1.ManifestWork
	ownership.Role
	// manifests maps objects to their indices in the spec.
	manifests map[id]int
}

// find returns the existing works, ordered by the numbers in their names.
func find(in Input, objects []*object) (works []*work) {
	ids := make(map[string]id, len(objects))
	for _, o := range objects {
		ids[string(o.raw)] = o.id
	}
	owner := client.ObjectKeyFromObject(in.Installation.AddOn)
	for i := range in.Existing {
		w := &in.Existing[i]
		if of, ok := ownership.Of(w); !ok || of != owner {
			continue
		}
		role, _ := ownership.Parse(w.Name, owner)
		works = append(works, &work{ManifestWork: w, Role: role, manifests: identify(w.Spec.Workload.Manifests, ids)})
	}
	slices.SortFunc(works, func(a, b *work) int { return cmp.Or(a.Index-b.Index, cmp.Compare(a.Namespace, b.Namespace)) })
	return works
}

// identify returns which objects the manifests are, and parses only manifests that are not known. It leaves out those that cannot be
// parsed.
func identify(manifests []workv1.Manifest, ids map[string]id) map[id]int {
	found := make(map[id]int, len(manifests))
	for i := range manifests {
		if o, ok := ids[string(manifests[i].Raw)]; ok {
			found[o] = i
			continue
		}
		var partial struct {
			metav1.TypeMeta `json:",inline"`
			Metadata        struct{ Namespace, Name string }
		}
		if json.Unmarshal(manifests[i].Raw, &partial) == nil {
			kind := schema.FromAPIVersionAndKind(partial.APIVersion, partial.Kind).GroupKind()
			found[id{kind, partial.Metadata.Namespace, partial.Metadata.Name}] = i
		}
	}
	return found
}

// reported returns what the agent reports of an object of the work, or nil.
func (w *work) reported(o id) *workv1.ManifestCondition {
	for i := range w.Status.ResourceStatus.Manifests {
		m := &w.Status.ResourceStatus.Manifests[i]
		if r := m.ResourceMeta; r.Kind == o.Kind && r.Group == o.Group && r.Name == o.name && (r.Namespace == o.namespace || r.Namespace == "") {
			return m
		}
	}
	return nil
}

// observed returns a condition of the work. ok reports whether it is about the present spec.
func (w *work) observed(condition string) (c *metav1.Condition, ok bool) {
	c = meta.FindStatusCondition(w.Status.Conditions, condition)
	return c, c != nil && c.ObservedGeneration >= w.Generation
}

// has reports whether the work has applied an object in the version of its present spec.
func (w *work) has(o id) bool {
	if _, named := w.manifests[o]; !named {
		return false
	}
	if _, ok := w.observed(fleet.ConditionApplied); !ok {
		return false
	}
	reported := w.reported(o)
	return reported != nil && meta.IsStatusConditionTrue(reported.Conditions, fleet.ConditionApplied)
}

// Answered reports whether the agent has reported on the present version of a work. A work that is being deleted counts as not reported
// on.
func Answered(w *workv1.ManifestWork) bool {
	_, observed := (&work{ManifestWork: w}).observed(fleet.ConditionApplied)
	return observed && w.DeletionTimestamp.IsZero()
}
