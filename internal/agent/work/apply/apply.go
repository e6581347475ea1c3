package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/applied"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/manifest"
)

// fieldManager is who the API server records as the writer of what is applied.
const fieldManager = "work-agent"

// applier applies manifests to the managed cluster.
type applier struct {
	objects dynamic.Interface
	mapper  meta.RESTMapper
	tracked *tracker.Tracker
}

// apply applies every manifest of the work, in the order of WK-04; one that fails does not stop the others. The outcomes
// are in the order of the spec.
func (a *applier) apply(ctx context.Context, amw *workv1.AppliedManifestWork, work *workv1.ManifestWork, last *pass) []outcome {
	manifests := manifest.Decode(work.Spec.Workload.Manifests)
	outcomes := make([]outcome, len(manifests))
	manifest.Order(manifests)
	owner := applied.OwnerReference(amw)
	for _, m := range manifests {
		outcomes[m.Ordinal] = a.applyOne(ctx, owner, work, m, last)
	}
	return outcomes
}

func (a *applier) applyOne(ctx context.Context, owner metav1.OwnerReference, work *workv1.ManifestWork, m manifest.Manifest, last *pass) outcome {
	o := outcome{ordinal: m.Ordinal}
	if m.Err != nil {
		o.err = m.Err
		return o
	}
	o.identity = manifest.Identify(m.Object)
	if o.err = a.resolve(&o, m.Object); o.err != nil {
		return o
	}
	a.tracked.Track(owner.Name, o.object())
	o.hash, o.manifest = manifest.Hash(m.Object), m.Object
	before := last.find(o.object())
	if o.freeze(work, before) {
		return o
	}
	if before != nil && before.err == nil && before.hash == o.hash && last.owner == owner.UID && a.unchanged(before) {
		o.uid, o.revision, o.presence, o.manifest = before.uid, before.revision, present, before.manifest
		return o
	}
	required := m.Object.DeepCopy()
	required.SetOwnerReferences(append(required.GetOwnerReferences(), owner))
	live, err := a.write(ctx, &o, required, before)
	if err != nil {
		o.err = fmt.Errorf("%s: %w", o.identity, err)
		if before != nil {
			o.manifest = before.manifest // still the one to compare with
		}
		return o
	}
	a.tracked.Saw(o.object(), live)
	o.uid, o.revision, o.presence, o.live = live.GetUID(), tracker.RevisionOf(live), present, live
	return o
}

// unchanged tells whether the object is as the pass left it.
func (a *applier) unchanged(o *outcome) bool {
	revision, known := a.tracked.Revision(o.object())
	return known && revision == o.revision
}

// resolve finds the resource of the manifest's kind.
func (a *applier) resolve(o *outcome, object *unstructured.Unstructured) error {
	mapping, err := a.mapper.RESTMapping(o.identity.GroupKind(), o.identity.Version)
	if meta.IsNoMatchError(err) {
		o.presence = absent
		return fmt.Errorf("%s: the managed cluster has no kind %s in %s; install its CustomResourceDefinition, or correct apiVersion and kind",
			o.identity, o.identity.Kind, o.identity.GroupVersion())
	}
	if err != nil {
		return fmt.Errorf("%s: find the resource of the kind: %w", o.identity, err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		object.SetNamespace("")
		o.identity.Namespace = ""
	} else if o.identity.Namespace == "" {
		o.presence = absent
		return fmt.Errorf("%s: metadata.namespace is missing; a %s lives in a namespace", o.identity, o.identity.Kind)
	}
	o.mapping, o.resolved = mapping, true
	return nil
}

// write creates the object or, where there is one, makes it be what is required. An object that was never seen is created
// without a look first: mostly, it is not there.
func (a *applier) write(ctx context.Context, o *outcome, required *unstructured.Unstructured, before *outcome) (*unstructured.Unstructured, error) {
	resource := a.objects.Resource(o.mapping.Resource).Namespace(o.identity.Namespace)
	if before == nil || before.presence != present {
		live, err := resource.Create(ctx, required, metav1.CreateOptions{FieldManager: fieldManager})
		if !apierrors.IsAlreadyExists(err) {
			o.presence = presenceAfter(err)
			return live, err
		}
	}
	var live *unstructured.Unstructured
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		live, err = resource.Get(ctx, o.identity.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			live, err = resource.Create(ctx, required, metav1.CreateOptions{FieldManager: fieldManager})
			o.presence = presenceAfter(err)
			return err
		}
		if err != nil {
			return err
		}
		o.presence, o.uid = present, live.GetUID()
		live, err = a.update(ctx, resource, required, live, before)
		return err
	})
	return live, err
}

// update is the strategy Update (WK-05).
func (a *applier) update(ctx context.Context, resource dynamic.ResourceInterface, required, live *unstructured.Unstructured, before *outcome) (*unstructured.Unstructured, error) {
	if live.GetDeletionTimestamp() != nil {
		return nil, fmt.Errorf("the object is being deleted since %s and is applied again when it has gone; it waits for the finalizers %q",
			live.GetDeletionTimestamp(), live.GetFinalizers())
	}
	var previous *unstructured.Unstructured
	if before != nil {
		previous = before.manifest
	}
	merged, changed := manifest.Merge(required, live, previous)
	if !changed {
		return live, nil
	}
	return resource.Update(ctx, merged, metav1.UpdateOptions{FieldManager: fieldManager})
}

// presenceAfter is what an attempt to create an object tells about it.
func presenceAfter(err error) presence {
	switch {
	case err == nil:
		return present
	case apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return unknown
	default:
		return absent // the API server refused
	}
}
