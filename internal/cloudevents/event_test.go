package cloudevents

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-io/capstan/internal/cloudevents/pb"
)

// GR-03: an event is the same after its way over the wire, where attributes have the names of the binary mode.
func TestWire(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 1, 2, 3, 4000, time.UTC)
	event := New("cluster1", Type{ManifestBundles, Status, Update}, now)
	event.Extensions[ExtensionClusterName] = "cluster1"
	event.Extensions[ExtensionResourceVersion] = int32(7)
	event.Extensions[ExtensionDeletedAt] = now
	event.Data = []byte(`{"a":1}`)
	message, err := event.ToProto()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ce-time", "ce-clustername", "ce-resourceversion", "ce-deletiontimestamp", "contenttype"} {
		if message.GetAttributes()[name] == nil {
			t.Errorf("there is no attribute %s", name)
		}
	}
	wire, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	received := &pb.CloudEvent{}
	if err := proto.Unmarshal(wire, received); err != nil {
		t.Fatal(err)
	}
	got, err := FromProto(received)
	if err != nil || !reflect.DeepEqual(got, event) {
		t.Errorf("got %+v, %v; want %+v", got, err, event)
	}
}

// GR-03: what is no event is refused.
func TestFromProtoRefuses(t *testing.T) {
	t.Parallel()
	for name, event := range map[string]*pb.CloudEvent{
		"nothing":         nil,
		"no id":           {Source: "s", Type: "t", SpecVersion: SpecVersion},
		"no source":       {Id: "i", Type: "t", SpecVersion: SpecVersion},
		"no type":         {Id: "i", Source: "s", SpecVersion: SpecVersion},
		"another version": {Id: "i", Source: "s", Type: "t", SpecVersion: "0.3"},
		"protobuf":        {Id: "i", Source: "s", Type: "t", SpecVersion: SpecVersion, Data: &pb.CloudEvent_ProtoData{}},
		"a wrong time": {Id: "i", Source: "s", Type: "t", SpecVersion: SpecVersion,
			Attributes: map[string]*pb.CloudEvent_CloudEventAttributeValue{"ce-time": textOf("yesterday")}},
	} {
		if got, err := FromProto(event); err == nil {
			t.Errorf("%s is read as %+v", name, got)
		}
	}
}
