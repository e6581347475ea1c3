package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/executor"
	"github.com/capstan-io/capstan/internal/agent/work/managedfields"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/repair"
)

// fieldManager is who the API server records as the writer of what is applied.
const fieldManager = managedfields.Agent

// applier applies manifests to the managed cluster.
type applier struct {
	managed   client.Client
	objects   dynamic.Interface
	mapper    meta.RESTMapper
	tracked   *tracker.Tracker
	executors *executor.Checker
	// backoff decides how soon an object may be repaired again, by the clock.
	backoff *repair.Backoff
	clock   clock.PassiveClock
	// names distinguishes works of this hub from those of others.
	names *appliedmanifestwork.Names
}

// task is one manifest that is being applied.
type task struct {
	*manifestResult
	work *workv1.ManifestWork
	// required is the manifest with what marks it as the work's, as far as the work owns the object.
	required *unstructured.Unstructured
	owner    metav1.OwnerReference
	config   manifest.Config
	executor *workv1.ManifestWorkExecutor
	// before is what the last pass did with the object, if there was one.
	before *manifestResult
	// repairs makes the writes if the manifest was applied under this generation of the work before; nil if it was not. A hub that was
	// restored counts generations anew, so that another manifest may have been.
	repairs *repairs
}

// apply applies every manifest of the work, in the order of their kinds; one that fails does not stop the others. The results are in the
// order of the spec, as are the live objects: nil is one that the pass did not write.
func (a *applier) apply(ctx context.Context, amw *workv1.AppliedManifestWork, work *workv1.ManifestWork,
	last *workResult) ([]manifestResult, []*unstructured.Unstructured) {
	manifests := manifest.Decode(work.Spec.Workload.Manifests)
	results, live := make([]manifestResult, len(manifests)), make([]*unstructured.Unstructured, len(manifests))
	manifest.Order(manifests)
	b := &batch{work: work, owner: appliedmanifestwork.OwnerReference(amw), last: last, named: namedObjects{}, ended: endedJobsOf(amw)}
	for _, m := range manifests {
		results[m.Ordinal], live[m.Ordinal] = a.applyOne(ctx, b, m)
	}
	return results, live
}

// batch is what a pass over a work has for all manifests.
type batch struct {
	work  *workv1.ManifestWork
	owner metav1.OwnerReference
	// last is the pass before; nil if there was none.
	last *workResult
	// named are the objects of the manifests so far.
	named namedObjects
	ended endedJobs
}

func (a *applier) applyOne(ctx context.Context, b *batch, m manifest.Manifest) (manifestResult, *unstructured.Unstructured) {
	o := manifestResult{ordinal: m.Ordinal}
	if m.Err != nil {
		o.err = m.Err
		return o, nil
	}
	o.identity = manifest.Identify(m.Object)
	if o.err = a.resolve(&o, m.Object); o.err != nil {
		a.awaitMissing(b.owner.Name, &o) //nolint:contextcheck // as for the object
		return o, nil
	}
	a.tracked.Track(b.owner.Name, o.object()) //nolint:contextcheck // the watch of a kind goes on when the pass has ended
	if o.err = b.named.add(&o); o.err != nil {
		a.lookup(ctx, &o, b.last.find(o.object()))
		o.withheld = !a.mayGet(ctx, b.work.Spec.Executor, o.object())
		return o, nil
	}
	t := newTask(&o, b.work, b.owner, m.Object)
	t.before, t.ended = b.last.find(o.object()), b.ended.has(m.Object)
	if o.freeze(b.work, t.before) {
		return o, nil
	}
	if b.last.isOf(b.work, b.owner.UID) && t.before != nil && t.before.applied && t.before.hash == t.hash {
		a.resume(t)
	}
	live := a.applyTask(ctx, t, b.last != nil && b.last.owner == b.owner.UID)
	return o, live
}

// applyTask writes the object unless it is as the last pass left it, or a repair of it is not due. isSameOwner reports whether the
// AppliedManifestWork is that of the last pass.
func (a *applier) applyTask(ctx context.Context, t *task, isSameOwner bool) (live *unstructured.Unstructured) {
	if t.before != nil {
		t.written = t.before.written // until there is a write
		if t.before.hash == t.hash && t.before.manifest != nil {
			t.manifest = t.before.manifest // the same, which would be held twice
		}
	}
	err := a.check(ctx, t)
	until, backingOff := a.inBackoff(t)
	switch b := t.before; {
	case b != nil && b.err == nil && b.hash == t.hash && isSameOwner && a.unchanged(b) && !executor.IsRefusal(err):
		// what is applied stays when the authorizer does not answer
		t.uid, t.revision, t.presence, t.withheld = b.uid, b.revision, conditions.Present, b.withheld
		t.missingOwners = b.missingOwners
	case err != nil:
		a.fail(ctx, t, err)
	case backingOff:
		a.backOff(t, until)
	default:
		live = a.writeObject(ctx, t)
	}
	a.followDispute(t)
	t.applied = t.applied || t.err == nil
	if t.config.UpdateStrategy.Type == workv1.UpdateStrategyTypeReadOnly {
		t.manifest, t.written = nil, nil // what it says is by others, and stays when a later one with another strategy does not say it
	}
	return live
}

// writeObject writes what there is to write of the object, and remembers how that leaves it.
func (a *applier) writeObject(ctx context.Context, t *task) *unstructured.Unstructured {
	live, err := a.write(ctx, t, nil)
	if tracker.IsUnserved(err) {
		a.rediscover(t.identity.GroupVersionKind)
	}
	if backoff := new(backoffError); errors.As(err, &backoff) {
		a.backOff(t, backoff.until)
		return nil
	}
	if errors.Is(err, errEnded) {
		t.freezeAs(conditions.OfManifest(t.work, t.resourceMeta()), t.before)
		return nil
	}
	if err != nil {
		a.fail(ctx, t, err)
		return nil
	}
	a.tracked.Saw(t.object(), live)
	t.uid, t.revision = live.GetUID(), tracker.RevisionOf(t.mapping.Resource.GroupResource(), live)
	t.presence = conditions.Present
	return live
}

// check finds out whether the executor may do what the update strategy says.
func (a *applier) check(ctx context.Context, t *task) error {
	decision, err := a.executors.Check(ctx, t.executor, t.checked())
	t.requeueAt, t.withheld = decision.Until, !decision.MayGet
	return err
}

// mayGet reports whether the executor is known to have the right to read the object.
func (a *applier) mayGet(ctx context.Context, by *workv1.ManifestWorkExecutor, o tracker.Object) bool {
	decision, _ := a.executors.Check(ctx, by, executor.Object{ // without an answer, the decision is that it may not
		GroupVersionResource: o.GroupVersionResource, NamespacedName: o.NamespacedName, ReadOnly: true,
	})
	return decision.MayGet
}

// checked is what the executor must be allowed to apply.
func (t *task) checked() executor.Object {
	return executor.Object{
		GroupVersionResource: t.mapping.Resource, NamespacedName: t.object().NamespacedName, Content: t.manifest,
		Owned: t.owned, ReadOnly: t.config.UpdateStrategy.Type == workv1.UpdateStrategyTypeReadOnly,
	}
}

// fail records why the manifest is not applied, and whether the object exists.
func (a *applier) fail(ctx context.Context, t *task, err error) {
	t.err = fmt.Errorf("%s: %w", t.identity, a.explain(ctx, t.object(), err))
	t.missing = namespaceOf(err)
	a.awaitMissing(t.owner.Name, t.manifestResult) //nolint:contextcheck // the watch of a kind goes on when the pass has ended
	if t.presence == conditions.Unknown {
		a.lookup(ctx, t.manifestResult, t.before)
	}
	if t.before != nil {
		t.disputeBefore = t.before.lastDispute() // still what to compare with
	}
}

// lookup finds out whether an object exists, and which one it is. The watch knows the first of these, and the last pass may have found out
// the second.
func (a *applier) lookup(ctx context.Context, o, before *manifestResult) {
	o.presence = a.watchedPresence(o.object())
	if before != nil && o.presence == conditions.Present {
		o.found = cmp.Or(before.uid, before.found)
	}
	if o.presence == conditions.Absent || o.found != "" {
		return
	}
	object := o.object()
	live, err := a.objects.Resource(object.GroupVersionResource).Namespace(object.Namespace).Get(ctx, object.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		a.tracked.Saw(object, live)
		o.presence, o.found = conditions.Present, live.GetUID()
	case apierrors.IsNotFound(err):
		o.presence = conditions.Absent
	}
}

// watchedPresence reports whether an object exists as far as the watch knows.
func (a *applier) watchedPresence(o tracker.Object) conditions.Presence {
	switch revision, known := a.tracked.Revision(o); {
	case !known:
		return conditions.Unknown
	case revision == "":
		return conditions.Absent
	default:
		return conditions.Present
	}
}

// newTask finds out what the work wants done with the manifest.
func newTask(o *manifestResult, work *workv1.ManifestWork, owner metav1.OwnerReference, object *unstructured.Unstructured) *task {
	resource := o.resource().ResourceIdentifier
	t := &task{manifestResult: o, work: work, owner: owner, executor: work.Spec.Executor,
		config: manifest.ConfigFor(work.Spec.ManifestConfigs, resource)}
	o.owned = manifest.IsOwned(work.Spec.DeleteOption, t.config.UpdateStrategy.Type, resource)
	o.hash, o.manifest = manifest.Hash(object)+settingsOf(t), object
	t.required = object.DeepCopy()
	if o.owned {
		t.required.SetOwnerReferences(append(t.required.GetOwnerReferences(), owner))
	}
	return t
}

// settingsOf is everything but the manifest that decides how it is applied.
func settingsOf(t *task) string {
	settings, err := json.Marshal(struct {
		Strategy workv1.UpdateStrategy
		Owned    bool
		Executor *workv1.ManifestWorkExecutor
	}{t.config.UpdateStrategy, t.owned, t.executor})
	if err != nil {
		panic(err) // What came as JSON can be encoded as JSON.
	}
	return string(settings)
}

// write does what the update strategy says, and returns the object as it is then.
func (a *applier) write(ctx context.Context, t *task, dryRun []string) (*unstructured.Unstructured, error) {
	w := &writer{resource: a.objects.Resource(t.mapping.Resource).Namespace(t.identity.Namespace), dryRun: dryRun,
		checkResult: a.executors.ResultCheck(t.executor, t.checked())}
	if t.config.UpdateStrategy.Type != workv1.UpdateStrategyTypeReadOnly {
		a.leaveOutMissingOwners(ctx, t)
	}
	switch t.config.UpdateStrategy.Type {
	case workv1.UpdateStrategyTypeReadOnly:
		return w.readOnly(ctx, t)
	case workv1.UpdateStrategyTypeCreateOnly:
		return w.createOnly(ctx, t)
	case workv1.UpdateStrategyTypeServerSideApply:
		return w.serverSideApply(ctx, t)
	case workv1.UpdateStrategyTypeUpdate:
		return w.update(ctx, t)
	default:
		return nil, fmt.Errorf("updateStrategy.type %q is none of Update, CreateOnly, ServerSideApply and ReadOnly", t.config.UpdateStrategy.Type)
	}
}

// unchanged reports whether the object is as the pass left it.
func (a *applier) unchanged(o *manifestResult) bool {
	revision, known := a.tracked.Revision(o.object())
	return known && revision == o.revision
}

// resolve finds the resource of the manifest's kind.
func (a *applier) resolve(o *manifestResult, object *unstructured.Unstructured) error {
	mapping, err := a.mapper.RESTMapping(o.identity.GroupKind(), o.identity.Version)
	if meta.IsNoMatchError(err) {
		o.presence, o.missing = conditions.Absent, definitionOf(o.identity.GroupVersionKind)
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
		o.presence = conditions.Absent
		return fmt.Errorf("%s: metadata.namespace is missing; a %s lives in a namespace", o.identity, o.identity.Kind)
	}
	o.mapping, o.resolved = mapping, true
	return nil
}

// rediscover has the mapper read again which kinds a version of a group has. By itself the mapper does so only for a kind that it does
// not know, such as the empty one here; without that, it would keep the old mapping of a kind that was removed and has come back with
// another scope or another name of its resource.
func (a *applier) rediscover(gvk schema.GroupVersionKind) {
	_, _ = a.mapper.RESTMapping(schema.GroupKind{Group: gvk.Group}, gvk.Version)
}
