package apply

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/managedfields"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// aboutDeletions is a dispute about an object that was deleted so often. It names a power of two: the condition is not to change with each
// repair.
func (r *repairs) aboutDeletions(ctx context.Context, t *task, deletions int) *conditions.Dispute {
	return &conditions.Dispute{
		Deletions:    1 << (bits.Len(uint(deletions)) - 1),
		MissingOwner: r.missingOwner(ctx, t),
	}
}

// aboutFields is a dispute about fields of the live object.
func (r *repairs) aboutFields(ctx context.Context, t *task, live *unstructured.Unstructured, fields []manifest.Field) *conditions.Dispute {
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
	if slices.Contains(d.Fields, "metadata.ownerReferences") {
		d.MissingOwner = r.missingOwner(ctx, t)
	}
	return d
}

// others are the works that name the object besides this one.
func (r *repairs) others(t *task, live *unstructured.Unstructured) (others []string) {
	owners := sets.New(r.tracked.Owners(r.object.GroupResource, r.object.NamespacedName)...)
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

// missingOwner is the first owner that the manifest names and that does not exist, as far as that can be found out; empty if there is none.
// The garbage collector removes the reference to it, or the object where no other owner is left.
func (r *repairs) missingOwner(ctx context.Context, t *task) string {
	for _, owner := range t.manifest.GetOwnerReferences() {
		if !strings.HasSuffix(string(owner.UID), manifest.RemovalSuffix) && r.isMissing(ctx, t, owner) {
			return fmt.Sprintf("%s %s with uid %s", owner.Kind, owner.Name, owner.UID)
		}
	}
	return ""
}

func (r *repairs) isMissing(ctx context.Context, t *task, owner metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return false
	}
	mapping, err := r.mapper.RESTMapping(gv.WithKind(owner.Kind).GroupKind(), gv.Version)
	if err != nil {
		return false
	}
	namespace := t.identity.Namespace
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		namespace = ""
	}
	live, err := r.objects.Resource(mapping.Resource).Namespace(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && live.GetUID() != owner.UID
}
