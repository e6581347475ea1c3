// Package manifestbundle has the form in which events carry ManifestWorks between a hub and its agents.
//
// An event of the subresource spec has the work's spec as data, and the metadata of the work in the extension metadata: all but what it has
// for those who write it alone, which may be as large as the spec. One of a work that is being deleted has the time of that, and no data.
// An event of the subresource status has the status as data. The resource ID is the UID of the work, the resource version its generation.
package manifestbundle

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// ConditionDeleted is the type of the condition by which an agent says that a work that is being deleted has left its cluster.
const ConditionDeleted = "Deleted"

// Spec is the data of an event of the subresource spec.
type Spec struct {
	Manifests       []workv1.Manifest             `json:"manifests"`
	DeleteOption    *workv1.DeleteOption          `json:"deleteOption,omitempty"`
	ManifestConfigs []workv1.ManifestConfigOption `json:"manifestConfigs,omitempty"`
	// Executor has a name of its own spelling on the wire.
	Executor *workv1.ManifestWorkExecutor `json:"executer,omitempty"`
}

// Status is the data of an event of the subresource status.
type Status struct {
	// ManifestBundle is the spec that the status is of; sources that keep none are told, hubs have it already.
	ManifestBundle *Spec                      `json:"manifestBundle,omitempty"`
	Conditions     []metav1.Condition         `json:"conditions"`
	ResourceStatus []workv1.ManifestCondition `json:"resourceStatus"`
}

// IsReported reports whether the status of a work is of its present generation.
func IsReported(work *workv1.ManifestWork) bool {
	return slices.ContainsFunc(work.Status.Conditions, func(c metav1.Condition) bool { return c.ObservedGeneration == work.Generation })
}

// IsGone reports whether an event of an action, with the work that [DecodeSpec] returns, says that its source does not have the work any
// more. Hubs say that by the action [cloudevents.Delete], which is also for works that wait for their agent to finalize them; sources of
// the SDK by a time of deletion without the name of the work, as the answer to a resync request.
func IsGone(action cloudevents.Action, work *workv1.ManifestWork) bool {
	if work.DeletionTimestamp != nil && work.Name == "" {
		return true
	}
	waits := work.DeletionTimestamp != nil && slices.Contains(work.Finalizers, fleet.FinalizerManifestWorkCleanup)
	return action == cloudevents.Delete && !waits
}

// EncodeSpec returns an event of now with the spec of a work, for the cluster whose namespace the work is in.
func EncodeSpec(source string, action cloudevents.Action, work *workv1.ManifestWork, now time.Time) (*cloudevents.Event, error) {
	event, err := newEvent(source, cloudevents.Spec, action, work, now)
	if err != nil {
		return nil, err
	}
	switch {
	case work.DeletionTimestamp != nil:
		event.Extensions[cloudevents.ExtensionDeletedAt] = work.DeletionTimestamp.Time
		return event, nil
	case action == cloudevents.Delete:
		event.Extensions[cloudevents.ExtensionDeletedAt] = now
		return event, nil
	}
	return event, event.SetData(Spec{Manifests: work.Spec.Workload.Manifests, DeleteOption: work.Spec.DeleteOption,
		ManifestConfigs: work.Spec.ManifestConfigs, Executor: work.Spec.Executor})
}

// EncodeStatus returns an event of now with the status of a work. A source that gets two of them out of order goes by the sequence ID.
func EncodeStatus(source string, action cloudevents.Action, work *workv1.ManifestWork, sequenceID string,
	now time.Time) (*cloudevents.Event, error) {
	event, err := newEvent(source, cloudevents.Status, action, work, now)
	if err != nil {
		return nil, err
	}
	hash, err := cloudevents.HashStatus(&work.Status)
	if err != nil {
		return nil, fmt.Errorf("ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	}
	event.Extensions[cloudevents.ExtensionStatusHash] = hash
	event.Extensions[cloudevents.ExtensionSequenceID] = sequenceID
	return event, event.SetData(Status{Conditions: work.Status.Conditions, ResourceStatus: work.Status.ResourceStatus.Manifests})
}

// newEvent returns an event with the extensions that all events about a work have.
func newEvent(source string, subResource cloudevents.SubResource, action cloudevents.Action, work *workv1.ManifestWork,
	now time.Time) (*cloudevents.Event, error) {
	if work.Generation < 0 || work.Generation > math.MaxInt32 {
		return nil, fmt.Errorf("ManifestWork %s/%s has the generation %d, which no event can carry", work.Namespace, work.Name, work.Generation)
	}
	event := cloudevents.New(source, cloudevents.Type{DataType: cloudevents.ManifestBundles, SubResource: subResource, Action: action}, now)
	event.Extensions[cloudevents.ExtensionClusterName] = work.Namespace
	event.Extensions[cloudevents.ExtensionResourceID] = string(work.UID)
	event.Extensions[cloudevents.ExtensionResourceVersion] = int32(work.Generation)
	metadata := work.ObjectMeta.DeepCopy()
	metadata.ManagedFields = nil
	delete(metadata.Annotations, corev1.LastAppliedConfigAnnotation)
	data, err := json.Marshal(metadata)
	if err != nil {
		return nil, fmt.Errorf("the metadata of ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	}
	event.Extensions[cloudevents.ExtensionMetadata] = string(data)
	return event, event.SetLogTracing(work.Annotations)
}

// DecodeSpec returns the work of an event that [EncodeSpec] made. It has no status, and no spec if it is being deleted or is gone. Of a
// work that a source does not know, all that an event tells is the UID and the namespace.
func DecodeSpec(event *cloudevents.Event) (*workv1.ManifestWork, error) {
	work, eventType, err := decode(event, cloudevents.Spec)
	if err != nil {
		return nil, err
	}
	deletedAt, err := event.Timestamp(cloudevents.ExtensionDeletedAt)
	switch {
	case err != nil:
		return nil, err
	case deletedAt != nil:
		deleted := metav1.NewTime(*deletedAt)
		work.DeletionTimestamp = &deleted
	}
	if work.DeletionTimestamp != nil || eventType.Action == cloudevents.Delete {
		return work, nil
	}
	if work.Name == "" {
		return nil, fmt.Errorf("event %s has no name of the work in its extension %s", event.ID, cloudevents.ExtensionMetadata)
	}
	spec := &Spec{}
	if err := event.ReadData(spec); err != nil {
		return nil, err
	}
	work.Spec = workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: spec.Manifests}, DeleteOption: spec.DeleteOption,
		ManifestConfigs: spec.ManifestConfigs, Executor: spec.Executor}
	return work, nil
}

// DecodeStatus returns the work of an event that [EncodeStatus] made: with the status, the UID, the generation that the status is of, and
// whatever metadata the sender says the work has.
func DecodeStatus(event *cloudevents.Event) (*workv1.ManifestWork, error) {
	work, _, err := decode(event, cloudevents.Status)
	if err != nil {
		return nil, err
	}
	status := &Status{}
	if err := event.ReadData(status); err != nil {
		return nil, err
	}
	work.Status = workv1.ManifestWorkStatus{Conditions: status.Conditions,
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: status.ResourceStatus}}
	return work, nil
}

// decode returns a work with what the extensions tell. These have the last word over the metadata of the sender.
func decode(event *cloudevents.Event, subResource cloudevents.SubResource) (*workv1.ManifestWork, cloudevents.Type, error) {
	eventType, err := cloudevents.ParseType(event.Type)
	switch {
	case err != nil:
		return nil, eventType, fmt.Errorf("event %s: %w", event.ID, err)
	case eventType.DataType != cloudevents.ManifestBundles || eventType.SubResource != subResource:
		return nil, eventType, fmt.Errorf("event %s has the type %s, want one of %s.%s", event.ID, event.Type,
			cloudevents.ManifestBundles, subResource)
	}
	work := &workv1.ManifestWork{}
	if metadata := event.Text(cloudevents.ExtensionMetadata); metadata != "" {
		if err := json.Unmarshal([]byte(metadata), &work.ObjectMeta); err != nil {
			return nil, eventType, fmt.Errorf("extension %s of event %s: %w", cloudevents.ExtensionMetadata, event.ID, err)
		}
	}
	id, cluster := event.Text(cloudevents.ExtensionResourceID), event.Text(cloudevents.ExtensionClusterName)
	if id == "" || cluster == "" {
		return nil, eventType, fmt.Errorf("event %s of type %s has the extensions %s %q and %s %q, want both", event.ID, event.Type,
			cloudevents.ExtensionResourceID, id, cloudevents.ExtensionClusterName, cluster)
	}
	generation, err := event.Integer(cloudevents.ExtensionResourceVersion)
	if err != nil {
		return nil, eventType, err
	}
	work.UID, work.Namespace, work.Generation = types.UID(id), cluster, generation
	work.SetGroupVersionKind(workv1.GroupVersion.WithKind("ManifestWork"))
	return work, eventType, nil
}
