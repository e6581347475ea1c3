package brokerapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/manifestbundle"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// receiveWork takes a work over. What the hub sends of works has no status: that is the agent's own. One that is being deleted comes
// without its spec. again is that of receive.
func (c *collection) receiveWork(event *cloudevents.Event, action cloudevents.Action) (again bool, err error) {
	work, err := manifestbundle.DecodeSpec(event)
	if err != nil {
		return false, err
	}
	if manifestbundle.IsGone(action, work) {
		return false, c.remove(string(work.UID))
	}
	if work.Namespace != c.api.Cluster || work.Name == "" {
		return false, nil
	}
	finalizing := work.DeletionTimestamp != nil && slices.Contains(work.Finalizers, fleet.FinalizerManifestWorkCleanup)
	if finalizing && c.isReported(string(work.UID)) {
		go c.api.reportDeleted(work)
		return false, nil
	}
	c.nameSource(work, event)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(work)
	if err != nil {
		return false, fmt.Errorf("decode ManifestWork %s: %w", work.Name, err)
	}
	o := &unstructured.Unstructured{Object: content}
	if work.ResourceVersion == unversioned {
		o.SetGeneration(1)
	}
	return c.receive(o, action, func(o, current *unstructured.Unstructured) error {
		if work.DeletionTimestamp != nil {
			carry(current, o, "spec")
		}
		if work.ResourceVersion == unversioned {
			o.SetGeneration(generationAfter(current, o))
		}
		carryStatus(current, o)
		return nil
	})
}

// nameSource notes on a work who sent it. That is not for others to say.
func (c *collection) nameSource(work *workv1.ManifestWork, event *cloudevents.Event) {
	delete(work.Annotations, fleet.AnnotationWorkSource)
	if source := event.Text(cloudevents.ExtensionOriginalSource); c.api.NamesSources && source != "" {
		metav1.SetMetaDataAnnotation(&work.ObjectMeta, fleet.AnnotationWorkSource, source)
	}
}

// carryStatus carries over a status that is of the spec of a work, or of an earlier one. A restored hub counts generations anew, so that
// another spec may have the generation that the status says was applied.
func carryStatus(from, into *unstructured.Unstructured) {
	was, is := from.GetGeneration(), into.GetGeneration()
	if is > was || is == was && equality.Semantic.DeepEqual(from.Object["spec"], into.Object["spec"]) {
		carry(from, into, "status")
	}
}

// generationAfter counts the specs of a work whose source does not: it is how the agent knows that it has another one to apply.
func generationAfter(current, o *unstructured.Unstructured) int64 {
	if equality.Semantic.DeepEqual(current.Object["spec"], o.Object["spec"]) {
		return current.GetGeneration()
	}
	return current.GetGeneration() + 1
}

// updateWork writes what an agent may write of a work: its status, and its own finalizer, which the hub keeps for it. The hub puts it on
// with the first report, and takes it off when the work is reported to have left the cluster.
func (a *API) updateWork(r *request, c *collection, base *record, current, next *unstructured.Unstructured) (*http.Response, error) {
	work := &workv1.ManifestWork{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(next.Object, work); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if r.subresource == "" {
		if err := onlyFinalizer(current, next); err != nil {
			return nil, apierrors.NewForbidden(r.groupResource(), r.name, err)
		}
		if !slices.Contains(work.Finalizers, fleet.FinalizerManifestWorkCleanup) {
			if work.DeletionTimestamp == nil {
				return nil, apierrors.NewForbidden(r.groupResource(), r.name,
					fmt.Errorf("by gRPC the finalizer %s can be removed from a work that is being deleted alone", fleet.FinalizerManifestWorkCleanup))
			}
			setDeleted(work, metav1.NewTime(a.Clock.Now()))
		}
	}
	err := a.publishStatus(r.Context(), work, base.hubVersion, cloudevents.Update)
	if apierrors.IsNotFound(cloudevents.APIError(err)) && r.subresource == "" && work.DeletionTimestamp != nil {
		return nil, errors.Join(err, c.forget(base)) // it was deleted regardless of its finalizers
	}
	if err != nil {
		return nil, err
	}
	now, err := c.acceptedWork(base, next, r.subresource == "status")
	if err != nil {
		return nil, err
	}
	return respond(r.Request, http.StatusOK, now.raw), nil
}

// setDeleted says in the status of a work that it has left the cluster.
func setDeleted(work *workv1.ManifestWork, at metav1.Time) {
	meta.SetStatusCondition(&work.Status.Conditions, metav1.Condition{Type: manifestbundle.ConditionDeleted, Status: metav1.ConditionTrue,
		Reason: "ManifestsDeleted", Message: "All that the work applied has been removed from the cluster", LastTransitionTime: at})
}

// reportDeleted reports once more that a work has left the cluster: the hub still waits for that, so the first report was lost. Each
// repetition has the same time, so that it is no news to a hub that has it.
func (a *API) reportDeleted(work *workv1.ManifestWork) {
	work.Finalizers = slices.DeleteFunc(work.Finalizers, func(f string) bool { return f == fleet.FinalizerManifestWorkCleanup })
	setDeleted(work, *work.DeletionTimestamp)
	err := a.publishStatus(a.ctx, work, work.ResourceVersion, cloudevents.Update)
	if err != nil && !apierrors.IsNotFound(cloudevents.APIError(err)) {
		log.FromContext(a.ctx).Error(err, "That a ManifestWork has left the cluster could not be reported again", "work", work.Name)
	}
}

func (a *API) publishStatus(ctx context.Context, work *workv1.ManifestWork, hubVersion string, action cloudevents.Action) error {
	work.ResourceVersion = hubVersion
	delete(work.Annotations, fleet.AnnotationWorkSource)
	if hubVersion == unversioned {
		work.Generation = 0
	}
	event, err := manifestbundle.EncodeStatus(a.Source, action, work, a.sequence.next(), a.Clock.Now())
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return a.publish(ctx, event)
}

// onlyFinalizer fails if two versions of a work differ in more than the agent's finalizer.
func onlyFinalizer(current, next *unstructured.Unstructured) error {
	a, b := current.DeepCopy(), next.DeepCopy()
	others := func(o *unstructured.Unstructured) {
		o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == fleet.FinalizerManifestWorkCleanup }))
		if len(o.GetFinalizers()) == 0 {
			unstructured.RemoveNestedField(o.Object, "metadata", "finalizers")
		}
	}
	others(a)
	others(b)
	if !equality.Semantic.DeepEqual(a.Object, b.Object) {
		return fmt.Errorf("by gRPC an agent changes nothing of a work but its status and the finalizer %s", fleet.FinalizerManifestWorkCleanup)
	}
	return nil
}

// acceptedWork stores what the hub has accepted on top of what it has sent meanwhile: the status is the agent's.
func (c *collection) acceptedWork(base *record, next *unstructured.Unstructured, status bool) (*record, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.records[base.key]
	if now == nil || now.uid != base.uid {
		return c.newRecord(next, base.version, base.hubVersion)
	}
	o, err := now.object()
	if err != nil {
		return nil, err
	}
	if status {
		carryStatus(next, o)
	} else if now.hubVersion == base.hubVersion {
		carry(next, o, "metadata", "finalizers")
	}
	now, err = c.put(o, now.hubVersion, func(*record) {})
	if err != nil || o.GetDeletionTimestamp() == nil || len(o.GetFinalizers()) > 0 {
		return now, err
	}
	gone, err := c.drop(now) // nothing keeps the work on the hub any more
	if err == nil {
		c.deleted[base.uid] = true
	}
	return gone, err
}

// forget drops a record, unless it is another one by now. The hub may yet send the object again.
func (c *collection) forget(r *record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.records[r.key] != r {
		return nil
	}
	_, err := c.drop(r)
	delete(c.deleted, r.uid)
	return err
}

// everything selects all objects.
var everything = &selection{labels: labels.Everything(), fields: fields.Everything()}

// answerStatusResync sends the statuses that the hub does not have.
func (a *API) answerStatusResync(ctx context.Context, c *collection, event *cloudevents.Event) error {
	hashes := cloudevents.StatusHashes{}
	if err := event.ReadData(&hashes); err != nil {
		return err
	}
	has := map[string]string{}
	for _, one := range hashes.Hashes {
		has[one.ResourceID] = one.StatusHash
	}
	c.mu.Lock()
	all := c.selected(everything)
	c.mu.Unlock()
	go func() {
		for _, r := range all {
			if err := a.resendStatus(ctx, c, r, has); err != nil {
				log.FromContext(ctx).Error(err, "The status of a ManifestWork could not be sent again", "work", r.key.Name)
			}
		}
	}()
	return nil
}

// resendStatus sends the status as it is by now.
func (a *API) resendStatus(ctx context.Context, c *collection, r *record, has map[string]string) error {
	defer a.lockWrites(c.kind.resource, r.key)()
	now := c.get(r.key)
	if now == nil || now.uid != r.uid {
		return nil
	}
	o, err := now.object()
	if err != nil {
		return err
	}
	work := &workv1.ManifestWork{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, work); err != nil {
		return err
	}
	hash, err := cloudevents.HashStatus(&work.Status)
	if err != nil {
		return err
	}
	if len(work.Status.Conditions) == 0 || len(has) > 0 && (has[now.uid] == "" || has[now.uid] == hash) {
		return nil
	}
	return a.publishStatus(ctx, work, now.hubVersion, cloudevents.ResyncResponse)
}
