// Package resource has the form in which events carry the resources of a hub that are delivered as they are: all kinds but ManifestWorks,
// of which agents get manifest bundles.
//
// The data of such an event is the resource as JSON. The extension resourceid is its UID; its name as long as it has no UID, because it is
// about to be created. resourceversion is the resource version of the API server as text, because it does not fit into the numbers of
// CloudEvents. An event of the action delete_request says that the hub does not have the resource any more; it has no data in an answer to
// a resync request, where the hub knows no more than the resource ID.
package resource

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

// Object is a resource of a kind that has a data type.
type Object interface {
	runtime.Object
	metav1.Object
}

var kinds = map[cloudevents.DataType]string{
	cloudevents.ManagedClusters: "ManagedCluster",
	cloudevents.SigningRequests: "CertificateSigningRequest",
	cloudevents.Leases:          "Lease",
	cloudevents.Events:          "Event",
	cloudevents.TokenRequests:   "TokenRequest",
	cloudevents.AddOns:          "ManagedClusterAddOn",
	cloudevents.AddOnsOfBetaAPI: "ManagedClusterAddOn",
}

// Encode returns an event of now about a resource of a cluster, which stays as it is.
func Encode(source string, eventType cloudevents.Type, cluster string, object Object, now time.Time) (*cloudevents.Event, error) {
	kind, known := kinds[eventType.DataType]
	if !known {
		return nil, fmt.Errorf("resources of the data type %s have no event of their own", eventType.DataType)
	}
	event := cloudevents.New(source, eventType, now)
	event.Extensions[cloudevents.ExtensionClusterName] = cluster
	event.Extensions[cloudevents.ExtensionResourceID] = ID(object)
	if version := object.GetResourceVersion(); version != "" {
		event.Extensions[cloudevents.ExtensionResourceVersion] = version
	}
	if deletedAt := object.GetDeletionTimestamp(); deletedAt != nil {
		event.Extensions[cloudevents.ExtensionDeletedAt] = deletedAt.Time
	} else if eventType.Action == cloudevents.Delete {
		event.Extensions[cloudevents.ExtensionDeletedAt] = now
	}
	if err := event.SetLogTracing(object.GetAnnotations()); err != nil {
		return nil, err
	}
	sent := object.DeepCopyObject()
	sent.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: eventType.Group, Version: eventType.Version, Kind: kind})
	if sent, ok := sent.(metav1.Object); ok {
		sent.SetManagedFields(nil)
	}
	return event, event.SetData(sent)
}

// Decode reads the resource that an event carries into an empty one of its kind. It fails if the event has no data, and if the data is of
// another kind than the type of the event.
func Decode(event *cloudevents.Event, into Object) error {
	eventType, err := cloudevents.ParseType(event.Type)
	if err != nil {
		return fmt.Errorf("event %s: %w", event.ID, err)
	}
	if err := event.ReadData(into); err != nil {
		return err
	}
	want := schema.GroupVersionKind{Group: eventType.Group, Version: eventType.Version, Kind: kinds[eventType.DataType]}
	if got := into.GetObjectKind().GroupVersionKind(); !got.Empty() && got != want {
		return fmt.Errorf("event %s of type %s has a %s, want a %s", event.ID, event.Type, got, want)
	}
	return nil
}

// ID returns what the extension resourceid has for a resource.
func ID(object metav1.Object) string {
	if uid := object.GetUID(); uid != "" {
		return string(uid)
	}
	return object.GetName()
}

// Version returns the resource version of a resource as resync requests have it; 0, if it has none.
func Version(object metav1.Object) (int64, error) {
	version := object.GetResourceVersion()
	if version == "" {
		return 0, nil
	}
	number, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the resource version %q of %s is no number", version, object.GetName())
	}
	return number, nil
}
