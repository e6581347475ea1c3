package apply

import (
	"fmt"
	"math/bits"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/managedfields"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// aboutDeletions is a dispute about an object that was deleted so often. It names a power of two: the condition is not to change with each
// repair.
func aboutDeletions(deletions int) *conditions.Dispute {
	return &conditions.Dispute{Deletions: 1 << (bits.Len(uint(deletions)) - 1)}
}

// aboutFields is a dispute about fields of the live object.
func (r *repairs) aboutFields(t *task, live *unstructured.Unstructured, fields []manifest.Field) *conditions.Dispute {
	d := &conditions.Dispute{}
	for _, field := range fields {
		d.Fields = append(d.Fields, field.String())
	}
	writer := managedfields.LastWriter(live, fields)
	if writer != (managedfields.Writer{}) && !writer.IsAgent() {
		d.Writer = writer.String()
		return d
	}
	d.ByAgent, d.Others = writer.IsAgent(), r.others(t, live)
	return d
}

// others are the works that name the object besides this one.
func (r *repairs) others(t *task, live *unstructured.Unstructured) (others []string) {
	owners := sets.New(r.tracked.Owners(t.mapping.Resource.GroupResource(), r.object.NamespacedName)...)
	for _, owner := range live.GetOwnerReferences() {
		if tracker.IsWork(owner) {
			owners.Insert(owner.Name)
		}
	}
	for _, owner := range sets.List(owners.Delete(t.owner.Name)) {
		if work, ours := r.names.WorkOf(owner); ours {
			others = append(others, "ManifestWork "+work)
		} else {
			others = append(others, fmt.Sprintf("AppliedManifestWork %s of another hub", owner))
		}
	}
	return others
}
