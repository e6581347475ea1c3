package resources

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/broker"
	"github.com/capstan-io/capstan/internal/broker/access"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/manifestbundle"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// works are the ManifestWorks in the namespaces of clusters, which agents get as manifest bundles.
type works struct{ source }

// uidField is an index of the cache.
const uidField = "metadata.uid"

func newWorks(o Options) *works {
	return &works{source{Options: o, dataType: cloudevents.ManifestBundles, kind: workv1.GroupVersion.WithKind("ManifestWork"),
		empty:     func() client.Object { return &workv1.ManifestWork{} },
		list:      func() client.ObjectList { return &workv1.ManifestWorkList{} },
		clusterOf: namespaceOf, ofCluster: inNamespace, same: sameWork, encode: encodeWork,
		version: func(o metav1.Object) (int64, error) { return o.GetGeneration(), nil }, unreported: isUnreported}}
}

func isUnreported(object client.Object) bool {
	work, ok := object.(*workv1.ManifestWork)
	return ok && !manifestbundle.IsReported(work)
}

// sameWork tells whether nothing has changed but the status, which the agent has written itself, and finalizers.
func sameWork(before, now client.Object) bool {
	return before.GetGeneration() == now.GetGeneration() && (before.GetDeletionTimestamp() == nil) == (now.GetDeletionTimestamp() == nil) &&
		equality.Semantic.DeepEqual(before.GetLabels(), now.GetLabels()) &&
		equality.Semantic.DeepEqual(before.GetAnnotations(), now.GetAnnotations())
}

func encodeWork(action cloudevents.Action, _ string, object client.Object, now time.Time) (*cloudevents.Event, error) {
	work, ok := object.(*workv1.ManifestWork)
	if !ok {
		return nil, fmt.Errorf("%T is no ManifestWork", object)
	}
	return manifestbundle.EncodeSpec(cloudevents.SourceHub, action, work, now)
}

// Prepare implements broker.Service.
func (w *works) Prepare(event *cloudevents.Event, eventType cloudevents.Type, cluster string) (*broker.Write, error) {
	if eventType.SubResource != cloudevents.Status || eventType.Action != cloudevents.Update {
		return nil, unsupported(eventType, "update the status of ManifestWorks")
	}
	sent, err := manifestbundle.DecodeStatus(event)
	if err != nil {
		return nil, unreadable(err)
	}
	if sent.Namespace != cluster {
		return nil, forbidden(w.dataType, string(sent.UID), "it is of cluster %q in an event for cluster %q", sent.Namespace, cluster)
	}
	if sent.Name != "" { // agents of others may know a work by its UID alone
		if err := checkName(w.dataType, sent.Name); err != nil {
			return nil, err
		}
	}
	return &broker.Write{Subresource: "status", Name: sent.Name,
		Do: func(ctx context.Context, _ *access.Caller) error { return w.updateStatus(ctx, sent) }}, nil
}

// updateStatus writes what an agent says of a work that it has. An agent that has cleaned up a work that is being deleted says so by a
// condition, and the hub lets go of the work. What is about another generation than the present one is not worth writing: an agent that is
// yet to hear of a restored hub speaks of a later one.
func (w *works) updateStatus(ctx context.Context, sent *workv1.ManifestWork) error {
	if err := w.Start(ctx); err != nil {
		return apierrors.NewServiceUnavailable(err.Error())
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		work, err := w.find(ctx, sent.Namespace, sent.UID)
		if err != nil {
			return err
		}
		if sent.Name != "" && sent.Name != work.Name { // the right of the agent is for the name
			return forbidden(w.dataType, sent.Name, "the work with the UID %s is %q; report it by that name", sent.UID, work.Name)
		}
		if meta.IsStatusConditionTrue(sent.Status.Conditions, manifestbundle.ConditionDeleted) {
			return w.release(ctx, work)
		}
		if work, err = w.atLeast(ctx, work, sent.Generation); err != nil {
			return err
		}
		if sent.UID != work.UID || sent.Generation != work.Generation {
			return nil
		}
		if work.DeletionTimestamp == nil {
			if err := patch.AddFinalizer(ctx, w.Client, work, fleet.FinalizerManifestWorkCleanup); err != nil {
				return err
			}
		}
		return w.patchStatus(ctx, work, sent.Status)
	})
}

// atLeast returns the work as the API knows it if the cache has an earlier generation, of which it may be behind.
func (w *works) atLeast(ctx context.Context, cached *workv1.ManifestWork, generation int64) (*workv1.ManifestWork, error) {
	if cached.Generation >= generation {
		return cached, nil
	}
	work := &workv1.ManifestWork{}
	return work, w.Reader.Get(ctx, client.ObjectKeyFromObject(cached), work)
}

// release lets go of a work that is being deleted, by what the API knows: the cache may not have heard of the deletion yet.
func (w *works) release(ctx context.Context, cached *workv1.ManifestWork) error {
	work := &workv1.ManifestWork{}
	if err := w.Reader.Get(ctx, client.ObjectKeyFromObject(cached), work); err != nil {
		return client.IgnoreNotFound(err)
	}
	switch {
	case work.UID != cached.UID:
		return nil
	case work.DeletionTimestamp == nil:
		return forbidden(w.dataType, work.Name, "the agent says that it has cleaned up, and the ManifestWork is not being deleted")
	}
	return patch.RemoveFinalizer(ctx, w.Client, work, fleet.FinalizerManifestWorkCleanup)
}

// find returns the work of a cluster with the UID, which is how the agent knows it.
func (w *works) find(ctx context.Context, cluster string, uid types.UID) (*workv1.ManifestWork, error) {
	found := &workv1.ManifestWorkList{}
	if err := w.Client.List(ctx, found, client.InNamespace(cluster), client.MatchingFields{uidField: string(uid)}); err != nil {
		return nil, fmt.Errorf("find the ManifestWork with the UID %s of cluster %s: %w", uid, cluster, err)
	}
	if len(found.Items) == 0 {
		return nil, apierrors.NewNotFound(workv1.GroupVersion.WithResource("manifestworks").GroupResource(), string(uid))
	}
	return &found.Items[0], nil
}

// patchStatus replaces the status, which is the agent's alone.
func (w *works) patchStatus(ctx context.Context, work *workv1.ManifestWork, status workv1.ManifestWorkStatus) error {
	change, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": work.UID}, // another work of the same name has another status
		"status": map[string]any{
			"conditions": status.Conditions, "resourceStatus": map[string]any{"manifests": status.ResourceStatus.Manifests}},
	})
	if err != nil {
		return err
	}
	return w.Client.Status().Patch(ctx, work, client.RawPatch(types.MergePatchType, change))
}
