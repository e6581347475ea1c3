package workload

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/fleet"
)

// Owner is the add-on that a ManifestWork belongs to: the name of its ManagedClusterAddOn, and the cluster that this is for. ok is
// false for works that are none of an add-on's, even if they have the label: whoever may write works in one namespace must not
// pass one off as that of an add-on in another, unless it could be on its hosting cluster; and what the hub or another controller makes for
// somebody, as for a ManifestWorkReplicaSet, must not become that of an add-on by the name and labels that he chooses for it. A work that has
// lost its owner reference still is the add-on's, and gets it back.
func Owner(w client.Object) (key types.NamespacedName, ok bool) {
	key.Name = w.GetLabels()[fleet.LabelAddOnName]
	if key.Name == "" || controlledByOther(w, key.Name) {
		return types.NamespacedName{}, false
	}
	key.Namespace = cmp.Or(w.GetLabels()[fleet.LabelAddOnNamespace], w.GetNamespace())
	place, ok := parse(w.GetName(), key)
	if !ok || !place.hosting && w.GetNamespace() != key.Namespace {
		return types.NamespacedName{}, false
	}
	return key, true
}

// controlledByOther tells whether a work is made, and kept as it is, by a controller that is not the manager of an add-on of that name.
func controlledByOther(w client.Object, addOn string) bool {
	if _, ofSet := w.GetLabels()[fleet.LabelManifestWorkReplicaSet]; ofSet {
		return true
	}
	controller := metav1.GetControllerOfNoCopy(w)
	return controller != nil && (controller.Kind != addOnKind || controller.Name != addOn)
}

// Unwritten is the condition that tells that a work of an add-on could not be written or deleted.
func Unwritten(owner types.NamespacedName, w client.Object, why error) metav1.Condition {
	switch of, _ := parse(w.GetName(), owner); {
	case of.hook:
		return failing(fleet.ConditionHookManifestCompleted, fleet.ReasonHookManifestIsNotCompleted,
			"The add-on stays until its pre-delete hooks are done. They could not be brought to the cluster: "+why.Error())
	case of.hosting:
		return failing(fleet.ConditionHostingManifestApplied, fleet.ReasonManifestWorkApplyFailed, why.Error())
	default:
		return failing(fleet.ConditionManifestApplied, fleet.ReasonManifestWorkApplyFailed, why.Error())
	}
}

// place is what the name of a work says of it.
type place struct {
	hosting, hook bool
	index         int
}

// parse is the reverse of the names in package fleet.
func parse(name string, owner types.NamespacedName) (place, bool) {
	switch name {
	case fleet.AddOnPreDeleteWork(owner.Name):
		return place{hook: true}, true
	case fleet.AddOnHostingPreDeleteWork(owner.Name, owner.Namespace):
		return place{hook: true, hosting: true}, true
	}
	number := name[strings.LastIndexByte(name, '-')+1:]
	index, err := strconv.Atoi(number)
	if err != nil || index < 0 {
		return place{}, false
	}
	switch name {
	case fleet.AddOnDeployWork(owner.Name, index):
		return place{index: index}, true
	case fleet.AddOnHostingDeployWork(owner.Name, owner.Namespace, index):
		return place{hosting: true, index: index}, true
	}
	return place{}, false
}

// work is one that exists. It is never changed.
type work struct {
	*workv1.ManifestWork
	place
	// manifests are the indices of the objects in its spec.
	manifests map[id]int
}

// find reads the existing works, ordered by their names' numbers.
func find(in Input, objects []*object) (works []*work) {
	known := make(map[string]id, len(objects))
	for _, o := range objects {
		known[string(o.raw)] = o.id
	}
	owner := client.ObjectKeyFromObject(in.Installation.AddOn)
	for i := range in.Existing {
		w := &in.Existing[i]
		if of, ok := Owner(w); !ok || of != owner {
			continue
		}
		place, _ := parse(w.Name, owner)
		works = append(works, &work{ManifestWork: w, place: place, manifests: identify(w.Spec.Workload.Manifests, known)})
	}
	slices.SortFunc(works, func(a, b *work) int { return cmp.Or(a.index-b.index, cmp.Compare(a.Namespace, b.Namespace)) })
	return works
}

// identify reads no more of manifests than which objects they are, and not even that of those which are known. One that cannot be
// read is none.
func identify(manifests []workv1.Manifest, known map[string]id) map[id]int {
	found := make(map[id]int, len(manifests))
	for i := range manifests {
		if o, ok := known[string(manifests[i].Raw)]; ok {
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

// reported is what the agent says of an object of the work; nil if nothing.
func (w *work) reported(o id) *workv1.ManifestCondition {
	for i := range w.Status.ResourceStatus.Manifests {
		m := &w.Status.ResourceStatus.Manifests[i]
		if r := m.ResourceMeta; r.Kind == o.Kind && r.Group == o.Group && r.Name == o.name && (r.Namespace == o.namespace || r.Namespace == "") {
			return m
		}
	}
	return nil
}

// observed tells whether the agent has reported on the present spec of the work, in a condition.
func (w *work) observed(condition string) (c *metav1.Condition, ok bool) {
	c = meta.FindStatusCondition(w.Status.Conditions, condition)
	return c, c != nil && c.ObservedGeneration >= w.Generation
}

// has tells whether the work has applied an object as it is in its present spec.
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

// Answered tells whether the agent has said of a work, as it is now, whether it is applied. One that is being deleted is not what it will be.
func Answered(w *workv1.ManifestWork) bool {
	_, observed := (&work{ManifestWork: w}).observed(fleet.ConditionApplied)
	return observed && w.DeletionTimestamp.IsZero()
}
