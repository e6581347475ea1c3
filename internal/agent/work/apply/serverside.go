package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/ignore"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// serverSideApply is the strategy ServerSideApply.
//
// Fields to ignore are set when a missing object is created. To an existing object they are not applied, and the agent
// gives up those that it owns, or else the API server would take their absence for a wish to remove them. All other fields
// are applied every time. So drift is repaired, except in the fields to ignore.
//
// It starts again when the object is not the one any more that it has read.
func (w *writer) serverSideApply(ctx context.Context, t *task) (live *unstructured.Unstructured, err error) {
	err = retry.OnError(retry.DefaultBackoff, isOutdated, func() error {
		live, err = w.applyAsRead(ctx, t)
		return err
	})
	return live, err
}

// applyAsRead applies the manifest to the object as it is when it is read.
func (w *writer) applyAsRead(ctx context.Context, t *task) (*unstructured.Unstructured, error) {
	s, err := newServerSide(ctx, w, t)
	if err != nil {
		return nil, err
	}
	before, err := w.get(ctx, t)
	var live *unstructured.Unstructured
	switch {
	case apierrors.IsNotFound(err):
		live, err = t.repair(ctx, nil, nil, func() (*unstructured.Unstructured, error) { return s.create(ctx, t) })
	case err == nil:
		s.keepOwners(t, before)
		s.keepHash(t, before)
		live, err = t.repair(ctx, before,
			func() (*unstructured.Unstructured, error) { return s.try(ctx, before) },
			func() (*unstructured.Unstructured, error) { return s.updateOrRebind(ctx, t, before) })
	}
	if err != nil {
		return nil, err
	}
	t.written, err = s.withoutIgnored(ctx, t.manifest)
	return live, err
}

// withoutIgnored is the manifest without the fields to ignore, which belong to others once they are there.
func (s *serverSide) withoutIgnored(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if !s.ignoresAny {
		return object, nil
	}
	content, err := s.unlessNew.Without(ctx, object.Object)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// create applies the whole manifest, and gives up the fields to ignore then: not after a dry run, which has made no object.
func (s *serverSide) create(ctx context.Context, t *task) (*unstructured.Unstructured, error) {
	if s.checkResult != nil {
		return s.createChecked(ctx, t)
	}
	live, err := s.apply(ctx, s.full)
	if err != nil {
		return nil, err
	}
	t.uid = live.GetUID()
	if s.ignoresAny && len(s.dryRun) == 0 {
		if live, err = s.applyTo(ctx, live); err != nil {
			return nil, err
		}
	}
	return s.own(ctx, t, live)
}

// createChecked creates the object if the executor may have it, and then applies to it. An apply alone would change an object that has come
// since this one was looked for, and that nobody has checked. An apply that would be refused leaves no object behind.
func (s *serverSide) createChecked(ctx context.Context, t *task) (*unstructured.Unstructured, error) {
	if err := s.check(ctx, s.full); err != nil {
		return nil, err
	}
	// What it conflicts with has come since. Where no apply makes objects, there is nothing to apply to yet.
	if _, err := s.preview(ctx, s.full, s.options.Force); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return nil, err
	}
	live, err := s.resource.Create(ctx, s.full, metav1.CreateOptions{FieldManager: fieldManager, DryRun: s.dryRun})
	if err != nil {
		return nil, err
	}
	t.uid = live.GetUID()
	if len(s.dryRun) > 0 {
		return live, nil
	}
	return s.update(ctx, t, live)
}

// updateOrRebind applies to an existing object. A binding that is to give another role is made anew: what others have set on it goes.
func (s *serverSide) updateOrRebind(ctx context.Context, t *task, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	updated, err := s.update(ctx, t, live)
	rebound := s.rebound(ctx, live, err)
	if rebound == nil {
		return updated, err
	}
	s.full.SetUID("") // that of the binding that goes
	if err := s.removeBinding(ctx, t, live, s.full, err); err != nil {
		return nil, err
	}
	if len(s.dryRun) > 0 {
		return rebound, nil
	}
	return s.create(ctx, t)
}

// rebound is a binding with the role that the manifest gives, if an apply was refused because it has another one; else nil.
func (s *serverSide) rebound(ctx context.Context, live *unstructured.Unstructured, refused error) *unstructured.Unstructured {
	if refused == nil {
		return nil
	}
	content, err := s.ignored(live).Without(ctx, s.full.Object)
	if err != nil || !refusesRole(refused, live, &unstructured.Unstructured{Object: content}) {
		return nil
	}
	rebound := live.DeepCopy()
	rebound.Object["roleRef"] = content["roleRef"]
	return rebound
}

func (s *serverSide) update(ctx context.Context, t *task, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := s.takeOver(ctx, t, live)
	if err != nil {
		return nil, err
	}
	if live, err = s.applyTo(ctx, live); err != nil {
		return nil, err
	}
	return s.own(ctx, t, live)
}

// keepOwners applies the references to other works as well, in the order of the object. To the API server, all works are one field manager,
// so those that one of them does not apply would go, and the order is that of the one that applied last.
func (s *serverSide) keepOwners(t *task, live *unstructured.Unstructured) {
	own := s.full.GetOwnerReferences()
	is := func(owner metav1.OwnerReference) func(metav1.OwnerReference) bool {
		return func(o metav1.OwnerReference) bool { return o.UID == owner.UID }
	}
	var owners []metav1.OwnerReference
	for _, owner := range live.GetOwnerReferences() {
		switch i := slices.IndexFunc(own, is(owner)); {
		case i >= 0:
			owners = append(owners, own[i])
			own = slices.Delete(own, i, i+1)
		case tracker.IsWork(owner) && owner.UID != t.owner.UID:
			owners = append(owners, owner)
		}
	}
	s.full.SetOwnerReferences(append(owners, own...))
}

// keepHash applies the hash by which another work knows what it has applied and ignores fields, for the same reason.
func (s *serverSide) keepHash(t *task, live *unstructured.Unstructured) {
	hash, found := live.GetAnnotations()[fleet.AnnotationConfigSpecHash]
	if !found || s.ignoresAny || !t.isShared(live) {
		return
	}
	applied, err := s.fields(live)
	if err == nil && applied.Has(fieldpath.MakePathOrDie("metadata", "annotations", fleet.AnnotationConfigSpecHash)) {
		s.annotate(fleet.AnnotationConfigSpecHash, hash)
	}
}

func (s *serverSide) annotate(key, value string) {
	annotations := s.full.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	s.full.SetAnnotations(annotations)
}

// try finds out by a dry run what would become of an existing object.
func (s *serverSide) try(ctx context.Context, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	writer, trial := *s.writer, *s
	writer.dryRun = []string{metav1.DryRunAll}
	trial.writer, trial.options.DryRun = &writer, writer.dryRun
	tried, err := trial.applyTo(ctx, live)
	if rebound := s.rebound(ctx, live, err); rebound != nil {
		return rebound, nil
	}
	return tried, err
}

// serverSide is the server-side apply of one manifest.
type serverSide struct {
	*writer
	options metav1.ApplyOptions
	// full is the whole manifest.
	full *unstructured.Unstructured
	// always are the fields to ignore of every object, and unlessNew those of an object to which this manifest was applied.
	always, unlessNew ignore.Fields
	ignoresAny        bool
	// hashes mark an object to which this manifest was applied. The first is the present one; the other one includes the owners, and was
	// written by earlier agents.
	hashes [2]string
}

func newServerSide(ctx context.Context, w *writer, t *task) (*serverSide, error) {
	config := workv1.ServerSideApplyConfig{}
	if c := t.config.UpdateStrategy.ServerSideApply; c != nil {
		config = *c
	}
	s := &serverSide{
		writer: w, full: manifest.ForCreate(t.required),
		options: metav1.ApplyOptions{FieldManager: config.FieldManager, Force: config.Force, DryRun: w.dryRun},
	}
	if s.options.FieldManager == "" {
		s.options.FieldManager = fieldManager
	}
	dropCreationTimestamps(s.full.Object)
	var err error
	if s.always, err = ignore.Compile(config.IgnoreFields, workv1.IgnoreFieldsConditionOnSpokePresent); err != nil {
		return nil, err
	}
	if s.unlessNew, err = ignore.Compile(config.IgnoreFields, workv1.IgnoreFieldsConditionOnSpokePresent,
		workv1.IgnoreFieldsConditionOnSpokeChange); err != nil {
		return nil, err
	}
	s.ignoresAny = !s.unlessNew.Empty()
	if !s.ignoresAny {
		return s, nil
	}
	return s, s.stamp(ctx)
}

// stamp writes the hash of the manifest into an annotation of the object, without the fields that are always ignored, and without owners:
// these differ between works that apply the same manifest, and change while the manifest stays the same.
func (s *serverSide) stamp(ctx context.Context) error {
	counts, err := s.always.Without(ctx, s.full.Object)
	if err != nil {
		return err
	}
	hashed := &unstructured.Unstructured{Object: counts}
	s.hashes[1] = manifest.Hash(hashed)
	hashed.SetOwnerReferences(nil)
	s.hashes[0] = manifest.Hash(hashed)
	s.annotate(fleet.AnnotationConfigSpecHash, s.hashes[0])
	return nil
}

// ignored are the fields to ignore of the live object.
func (s *serverSide) ignored(live *unstructured.Unstructured) ignore.Fields {
	if slices.Contains(s.hashes[:], live.GetAnnotations()[fleet.AnnotationConfigSpecHash]) {
		return s.unlessNew
	}
	return s.always
}

// forLive is what is applied to an existing object, and to no other: with its UID, the API server does not create an object without the
// fields to ignore in place of one that was deleted meanwhile.
func (s *serverSide) forLive(ctx context.Context, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	s.full.SetUID(live.GetUID())
	fields := s.ignored(live)
	if fields.Empty() {
		return s.full, nil
	}
	content, err := fields.Without(ctx, s.full.Object)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// applyTo applies to an existing object. A dry run takes over what is in conflict with the agent alone: takeOver cannot be tried.
func (s *serverSide) applyTo(ctx context.Context, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	applied, err := s.applyOnce(ctx, live)
	if len(s.dryRun) == 0 || !isConflictWithAgent(err) {
		return applied, err
	}
	forced := *s
	forced.options.Force = true
	return forced.applyOnce(ctx, live)
}

// isConflictWithAgent reports whether an apply is refused only because of fields that the agent wrote under another strategy.
func isConflictWithAgent(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		return false
	}
	return !slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return !strings.HasPrefix(cause.Message, fmt.Sprintf("conflict with %q using ", fieldManager)) // of no subresource, and no apply
	})
}

// applyOnce applies to an existing object, and gives up the fields to ignore before if the API server would change them.
func (s *serverSide) applyOnce(ctx context.Context, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	rest, err := s.forLive(ctx, live)
	if err != nil {
		return nil, err
	}
	fields := s.ignored(live)
	if fields.Empty() {
		return s.applyChecked(ctx, rest)
	}
	preview, err := s.preview(ctx, rest, s.options.Force)
	if err != nil {
		return nil, err
	}
	if equality.Semantic.DeepEqual(fields.Values(ctx, preview.Object), fields.Values(ctx, live.Object)) {
		return s.applyPreviewed(ctx, rest, preview)
	}
	if len(s.dryRun) > 0 {
		return preview, nil // that it gives up the fields first cannot be tried
	}
	if err := s.giveUp(ctx, live, preview); err != nil {
		return nil, err
	}
	return s.applyChecked(ctx, rest)
}

// applyChecked applies to an existing object if the executor may make of it what a dry run says that it becomes.
func (s *serverSide) applyChecked(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if s.checkResult == nil {
		return s.apply(ctx, object)
	}
	preview, err := s.preview(ctx, object, s.options.Force)
	if err != nil {
		return nil, err
	}
	return s.applyPreviewed(ctx, object, preview)
}

// applyPreviewed applies to an existing object if the executor may make of it what the preview says. A dry run is the same request as the
// preview.
func (s *serverSide) applyPreviewed(ctx context.Context, object, preview *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if err := s.check(ctx, preview); err != nil {
		return nil, err
	}
	if len(s.dryRun) > 0 {
		return preview, nil
	}
	return s.apply(ctx, object)
}

// giveUp ends the agent's ownership of the fields to ignore. Which ones it owns is the difference between what the API server says it
// owns after an apply of the whole manifest and after one without the fields.
func (s *serverSide) giveUp(ctx context.Context, live, withoutThem *unstructured.Unstructured) error {
	withThem, err := s.preview(ctx, s.full, true)
	if err != nil {
		return err
	}
	owned := live.GetManagedFields()
	mine := s.entry(owned)
	if mine < 0 {
		return nil
	}
	with, errWith := s.fields(withThem)
	without, errWithout := s.fields(withoutThem)
	now, errNow := s.fields(live)
	if err := errors.Join(errWith, errWithout, errNow); err != nil {
		return fmt.Errorf("read metadata.managedFields: %w", err)
	}
	kept, err := now.Difference(with.Difference(without)).ToJSON()
	if err != nil {
		return fmt.Errorf("write metadata.managedFields: %w", err)
	}
	owned[mine].FieldsV1 = metav1.NewFieldsV1(string(kept))
	if _, err := s.writeOwned(ctx, live, owned); err != nil {
		return fmt.Errorf("give up the ignored fields: %w", err)
	}
	return nil
}

// writeOwned writes who owns which fields of the object that was read.
func (s *serverSide) writeOwned(ctx context.Context, live *unstructured.Unstructured,
	owned []metav1.ManagedFieldsEntry) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"managedFields": owned,
		"resourceVersion": live.GetResourceVersion()}})
	if err != nil {
		return nil, err
	}
	return s.resource.Patch(ctx, live.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: s.options.FieldManager})
}

// entry is which of the entries says what the agent owns by server-side apply, -1 if there is none.
func (s *serverSide) entry(owned []metav1.ManagedFieldsEntry) int {
	return slices.IndexFunc(owned, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == s.options.FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
	})
}

func (s *serverSide) fields(object *unstructured.Unstructured) (*fieldpath.Set, error) {
	set := fieldpath.NewSet()
	owned := object.GetManagedFields()
	if mine := s.entry(owned); mine >= 0 && owned[mine].FieldsV1 != nil {
		return set, set.FromJSON(owned[mine].FieldsV1.GetRawReader())
	}
	return set, nil
}

// takeOver brings what the agent wrote under another strategy under server-side apply, or it would be in conflict with itself. In an object
// that other works name as well, some of that is theirs, and the API server would remove it, as this manifest does not name it: there, the
// agent lets go of what the manifest changes, and of nothing else.
func (s *serverSide) takeOver(ctx context.Context, t *task, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if len(s.dryRun) > 0 {
		return live, nil
	}
	taken := live.DeepCopy()
	var err error
	if t.isShared(live) {
		err = s.letGo(ctx, taken)
	} else {
		err = csaupgrade.UpgradeManagedFields(taken, sets.New(fieldManager), s.options.FieldManager)
	}
	if owned := taken.GetManagedFields(); err == nil && !equality.Semantic.DeepEqual(owned, live.GetManagedFields()) {
		live, err = s.writeOwned(ctx, live, owned)
	}
	if err != nil {
		return nil, fmt.Errorf("turn to server-side apply: %w", err)
	}
	return live, nil
}

// letGo has the entries of what the agent wrote under another strategy be as a forced apply of the manifest leaves them.
func (s *serverSide) letGo(ctx context.Context, live *unstructured.Unstructured) error {
	if !slices.ContainsFunc(live.GetManagedFields(), isWritten) {
		return nil
	}
	applied, err := s.forLive(ctx, live)
	if err != nil {
		return err
	}
	after, err := s.preview(ctx, applied, true)
	if err != nil {
		return err
	}
	var owned []metav1.ManagedFieldsEntry
	for _, entry := range live.GetManagedFields() {
		if isWritten(entry) {
			left := slices.IndexFunc(after.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
				return isWritten(e) && e.APIVersion == entry.APIVersion
			})
			if left < 0 {
				continue
			}
			entry.FieldsV1 = after.GetManagedFields()[left].FieldsV1
		}
		owned = append(owned, entry)
	}
	live.SetManagedFields(owned)
	return nil
}

// isWritten reports whether an entry is of what the agent wrote under another strategy.
func isWritten(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == fieldManager && entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == ""
}

func (s *serverSide) preview(ctx context.Context, object *unstructured.Unstructured, force bool) (*unstructured.Unstructured, error) {
	options := s.options
	options.DryRun, options.Force = []string{metav1.DryRunAll}, force
	live, err := s.resource.Apply(ctx, object.GetName(), object, options)
	return live, explainConflict(err)
}

func (s *serverSide) apply(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := s.resource.Apply(ctx, object.GetName(), object, s.options)
	return live, explainConflict(err)
}

// isOutdated reports whether a write fails because the object has changed, come or gone since it was read, and not because others own
// fields.
func isOutdated(err error) bool {
	if apierrors.IsInvalid(err) {
		cause, _ := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
		return cause.Field == "metadata.uid" // another object has the name now
	}
	return apierrors.IsAlreadyExists(err) ||
		apierrors.IsConflict(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
}

// explainConflict says who else owns which fields, and what can be done about it.
func explainConflict(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsConflict(err) || status.Status().Details == nil {
		return err
	}
	var conflicts []string
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			conflicts = append(conflicts, fmt.Sprintf("%s (%s)", cause.Field, cause.Message))
		}
	}
	if len(conflicts) == 0 {
		return err
	}
	return fmt.Errorf("others own fields of the manifest, and it differs from what they say: %s; set serverSideApply.force to take the fields over, "+
		"name them in ignoreFields, or drop them from the manifest: %w", strings.Join(conflicts, ", "), err)
}

// dropCreationTimestamps drops those that are null, which programs leave in what they write out.
func dropCreationTimestamps(value any) {
	switch value := value.(type) {
	case map[string]any:
		maps.DeleteFunc(value, func(field string, v any) bool { return field == "creationTimestamp" && v == nil })
		for _, v := range value {
			dropCreationTimestamps(v)
		}
	case []any:
		for _, v := range value {
			dropCreationTimestamps(v)
		}
	}
}
