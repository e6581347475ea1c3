package patch

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// Work is the patch that gives a ManifestWork the labels, annotations, owners and spec that it has been given since before, without an
// optimistic lock. A merge patch cannot write manifests: it means by null that a field goes, and the nulls of manifests would be lost.
func Work(before *workv1.ManifestWork) client.Patch { return &ofWork{before: before} }

// ofWork is a list of operations, which replace the spec as a whole.
type ofWork struct {
	before *workv1.ManifestWork
	locked bool
}

// Type implements client.Patch.
func (*ofWork) Type() types.PatchType { return types.JSONPatchType }

// Data implements client.Patch.
func (p *ofWork) Data(o client.Object) ([]byte, error) {
	after, ok := o.(*workv1.ManifestWork)
	if !ok {
		return nil, fmt.Errorf("a patch of a ManifestWork cannot change a %T", o)
	}
	all := operations{}
	if p.locked {
		all.set("/metadata/resourceVersion", p.before.ResourceVersion)
	}
	all.setEach("/metadata/labels", p.before.Labels, after.Labels)
	all.setEach("/metadata/annotations", p.before.Annotations, after.Annotations)
	if !equality.Semantic.DeepEqual(p.before.OwnerReferences, after.OwnerReferences) {
		all.set("/metadata/ownerReferences", after.OwnerReferences)
	}
	if otherSpec(p.before, after) {
		all.set("/spec", after.Spec)
	}
	return json.Marshal(all)
}

func otherSpec(before, after *workv1.ManifestWork) bool {
	return !equality.Semantic.DeepEqual(before.Spec, after.Spec)
}

// operations are a JSON patch.
type operations []operation

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// set also replaces what is there.
func (l *operations) set(path string, value any) { *l = append(*l, operation{"add", path, value}) }

// setEach sets the entries of a map that differ, so that those of other writers stay.
func (l *operations) setEach(path string, before, after map[string]string) {
	if len(before) == 0 {
		if len(after) > 0 {
			l.set(path, after)
		}
		return
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if value, found := before[key]; !found || value != after[key] {
			l.set(path+"/"+pointer.Replace(key), after[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, stays := after[key]; !stays {
			*l = append(*l, operation{Op: "remove", Path: path + "/" + pointer.Replace(key)})
		}
	}
}

// pointer escapes a key for a JSON pointer.
var pointer = strings.NewReplacer("~", "~0", "/", "~1")
