package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
)

// own makes the work an owner of the live object, or no longer one, and removes the annotation of the strategy Update. It is for
// strategies that change nothing else of the object.
func (w *writer) own(ctx context.Context, t *task, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	change, after := map[string]any{}, live.DeepCopy()
	if owners, changed := t.ownersOf(live); changed {
		change["ownerReferences"] = owners
		after.SetOwnerReferences(owners)
	}
	key, annotations := appliedmanifestwork.FieldsAnnotation(t.owner.Name), live.GetAnnotations()
	if _, stale := annotations[key]; stale {
		change["annotations"] = map[string]any{key: nil}
		delete(annotations, key)
		after.SetAnnotations(annotations)
	}
	if len(change) == 0 || len(w.dryRun) > 0 { // a dry run does not report owners
		return live, nil
	}
	change["resourceVersion"] = live.GetResourceVersion() // a list is replaced whole: only the one that was read may be
	patch, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return nil, err
	}
	return t.repair(ctx, live, planned(after), func() (*unstructured.Unstructured, error) {
		owned, err := w.resource.Patch(ctx, live.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
		if err != nil {
			return nil, fmt.Errorf("change the owners: %w", err)
		}
		return owned, nil
	})
}

func (t *task) ownersOf(live *unstructured.Unstructured) (owners []metav1.OwnerReference, changed bool) {
	owners = live.GetOwnerReferences()
	ours := slices.IndexFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == t.owner.UID })
	switch {
	case t.owned && ours < 0:
		return append(owners, t.owner), true
	case !t.owned && ours >= 0:
		return slices.Delete(owners, ours, ours+1), true
	default:
		return owners, false
	}
}
