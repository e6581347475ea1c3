package resource

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
)

// Whatever an event says of a resource, reading it does not crash, and yields one of the kind of the event, which can be sent on.
func FuzzDecode(f *testing.F) {
	renewal := cloudevents.Type{DataType: cloudevents.Leases, SubResource: cloudevents.Spec, Action: cloudevents.Update}
	f.Add(updateOfCluster.String(), []byte(`{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster",
		"metadata":{"name":"c1"},"spec":{"leaseDurationSeconds":60},"status":{"capacity":{"cpu":"4"}}}`))
	f.Add(renewal.String(), []byte(`{"metadata":{"uid":"u"},"spec":{"renewTime":"2026-11-25T01:02:03.000000Z"}}`))
	f.Fuzz(func(t *testing.T, typeName string, data []byte) {
		event := &cloudevents.Event{ID: "id", Source: "source", Type: typeName, Data: data}
		for _, object := range []Object{&clusterv1.ManagedCluster{}, &coordinationv1.Lease{}} {
			if Decode(event, object) != nil {
				continue
			}
			eventType, err := cloudevents.ParseType(typeName)
			if err != nil {
				t.Fatalf("an event of the type %q was read: %v", typeName, err)
			}
			kind, known := kinds[eventType.DataType]
			if got := object.GetObjectKind().GroupVersionKind().Kind; got != "" && got != kind {
				t.Errorf("an event of the type %q has a %s", typeName, got)
			}
			if _, err := Encode("kube", eventType, "c1", object, now); known && err != nil {
				t.Errorf("a resource that was read cannot be sent on: %v", err)
			}
		}
	})
}
