package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// writer writes objects of one resource. Each of its methods that is named for an update strategy leaves a result's
// presence and returns the object as it is then.
type writer struct {
	resource dynamic.ResourceInterface
	// dryRun is the value of the same name in requests; empty means that they are carried out.
	dryRun []string
	// checkResult is what check does; nil if there is nothing to check.
	checkResult func(ctx context.Context, result *unstructured.Unstructured) error
}

// update implements the update strategy Update: three-way merge. An object that was never seen is created without reading it first:
// usually it does not exist.
func (w *writer) update(ctx context.Context, t *task) (*unstructured.Unstructured, error) {
	t.rememberFields()
	if !t.owned {
		t.disownInManifest()
	}
	if t.isUnseen() {
		if live, err := w.createUnseen(ctx, t); live != nil || err != nil {
			return live, err
		}
	}
	var live *unstructured.Unstructured
	err := retry.OnError(retry.DefaultBackoff, isOutdated, func() (err error) {
		if live, err = w.read(ctx, t); apierrors.IsNotFound(err) {
			live, err = w.create(ctx, t)
			return err
		}
		if err != nil {
			return err
		}
		merged, changed := manifest.Merge(t.required, live, t.lastApplied(live))
		if deleting := refuseDeleting(live); deleting != nil {
			return errors.Join(w.dropFinalizers(ctx, live, merged.GetFinalizers()), deleting)
		}
		if !changed {
			return nil
		}
		read := live
		live, err = t.repair(ctx, read, planned(merged), func() (*unstructured.Unstructured, error) { return w.replace(ctx, t, read, merged) })
		return err
	})
	if err == nil {
		t.written = t.manifest
	}
	return live, err
}

// replace makes an object that exists what it is to be, if the executor may. A binding that is to give another role is made anew.
func (w *writer) replace(ctx context.Context, t *task, live, merged *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if err := w.check(ctx, merged); err != nil {
		return nil, err
	}
	replaced, err := w.resource.Update(ctx, merged, metav1.UpdateOptions{FieldManager: fieldManager, DryRun: w.dryRun})
	if !refusesRole(err, live, merged) {
		return replaced, err
	}
	anew := withoutServerMetadata(merged)
	if err := w.removeBinding(ctx, t, live, anew, err); err != nil {
		return nil, err
	}
	if len(w.dryRun) > 0 {
		return merged, nil
	}
	return w.resource.Create(ctx, anew, metav1.CreateOptions{FieldManager: fieldManager})
}

// check fails if the executor may not have the object be this.
func (w *writer) check(ctx context.Context, result *unstructured.Unstructured) error {
	if w.checkResult == nil {
		return nil
	}
	return w.checkResult(ctx, result)
}

// isUnseen reports whether nothing is known of the object, or that it did not exist when it was to be applied first. A Job that has ended
// was seen: it is not made again, and may still be there.
func (t *task) isUnseen() bool {
	return !t.ended && t.repairs == nil && (t.before == nil || t.before.presence != conditions.Present)
}

// disownInManifest requests the removal of the owner.
func (t *task) disownInManifest() {
	gone := t.owner
	gone.UID += manifest.RemovalSuffix
	t.required.SetOwnerReferences(append(t.required.GetOwnerReferences(), gone))
}

// createOnly implements the update strategy CreateOnly: of an object that exists, only the owner references are updated.
func (w *writer) createOnly(ctx context.Context, t *task) (*unstructured.Unstructured, error) {
	if t.isUnseen() {
		if live, err := w.createUnseen(ctx, t); live != nil || err != nil {
			return live, err
		}
	}
	live, err := w.get(ctx, t)
	if apierrors.IsNotFound(err) {
		return w.create(ctx, t)
	}
	if err != nil {
		return nil, err
	}
	if t.before != nil && t.before.hash != t.hash {
		t.written = nil // what an earlier manifest wrote stays
	}
	return w.own(ctx, t, live)
}

// readOnly implements the update strategy ReadOnly: the object belongs to another party. Only the owner references that an earlier
// strategy has set are removed.
func (w *writer) readOnly(ctx context.Context, t *task) (*unstructured.Unstructured, error) {
	live, err := w.resource.Get(ctx, t.identity.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		t.presence = conditions.Absent
		return nil, errors.New("the object does not exist; under the update strategy ReadOnly it is not made")
	}
	if err != nil {
		return nil, err
	}
	t.presence, t.uid = conditions.Present, live.GetUID()
	return w.own(ctx, t, live)
}

// createUnseen creates an object without reading it first. It returns nil if the object exists. That may be so whatever the refusal is: an
// API server checks quotas, webhooks, and the ports and addresses of Services, before it finds the object.
func (w *writer) createUnseen(ctx context.Context, t *task) (*unstructured.Unstructured, error) {
	live, refused := w.create(ctx, t)
	if refused == nil {
		return live, nil
	}
	if apierrors.IsAlreadyExists(refused) {
		return nil, nil
	}
	switch _, err := w.read(ctx, t); {
	case err == nil:
		return nil, nil
	case apierrors.IsNotFound(err):
		t.presence = conditions.Absent
	}
	return nil, refused
}

func (w *writer) create(ctx context.Context, t *task) (*unstructured.Unstructured, error) {
	return t.repair(ctx, nil, nil, func() (*unstructured.Unstructured, error) {
		t.presence = conditions.Unknown // an API server that refuses may not have read the object
		object := manifest.ForCreate(t.required)
		if err := w.check(ctx, object); err != nil {
			return nil, err
		}
		live, err := w.resource.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager, DryRun: w.dryRun})
		if err == nil {
			t.written = t.manifest
		}
		return live, err
	})
}

// dropFinalizers leaves an object that is being deleted only these of its finalizers.
func (w *writer) dropFinalizers(ctx context.Context, live *unstructured.Unstructured, left []string) error {
	if len(left) == len(live.GetFinalizers()) {
		return nil
	}
	// A list is replaced whole: only the one that was read may be.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": left, "resourceVersion": live.GetResourceVersion()}})
	if err != nil {
		return err
	}
	_, err = w.resource.Patch(ctx, live.GetName(), types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager, DryRun: w.dryRun})
	return err
}

// get returns an object that may be written: it fails if the object is being deleted.
func (w *writer) get(ctx context.Context, t *task) (*unstructured.Unstructured, error) {
	live, err := w.read(ctx, t)
	if err != nil {
		return nil, err
	}
	if err := refuseDeleting(live); err != nil {
		return nil, err
	}
	return live, nil
}

func (w *writer) read(ctx context.Context, t *task) (*unstructured.Unstructured, error) {
	live, err := w.resource.Get(ctx, t.identity.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	t.presence, t.uid = conditions.Present, live.GetUID()
	return live, nil
}

// refuseDeleting returns why an object that is being deleted is not written.
func refuseDeleting(live *unstructured.Unstructured) error {
	if live.GetDeletionTimestamp() == nil {
		return nil
	}
	return fmt.Errorf("the object is being deleted since %s and is applied again when it has gone; it %s", live.GetDeletionTimestamp(),
		conditions.DeletionBlockedBy(live.GetFinalizers(), conditions.ContentOf(live)))
}
