package cloudevents

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-io/capstan/internal/cloudevents/pb"
)

// Whatever a client sends over the wire, reading it does not crash, and what is accepted means the same when it is sent on.
func FuzzFromProto(f *testing.F) {
	event := &Event{ID: "id", Source: "cluster1-work-agent", Type: Heartbeat, Data: []byte(`{}`),
		Extensions: map[string]any{ExtensionClusterName: "cluster1", ExtensionResourceVersion: int32(7)}}
	message, err := event.ToProto()
	if err != nil {
		f.Fatal(err)
	}
	seed, err := proto.Marshal(message)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, content []byte) {
		message := &pb.CloudEvent{}
		if proto.Unmarshal(content, message) != nil {
			return
		}
		event, err := FromProto(message)
		if err != nil {
			return
		}
		for name := range event.Extensions {
			_, _ = event.Integer(name)
			_, _ = event.Timestamp(name)
		}
		again, err := event.ToProto()
		if err != nil {
			t.Fatalf("%+v cannot be sent on: %v", event, err)
		}
		same, err := FromProto(again)
		if err != nil {
			t.Fatalf("%+v is not accepted again: %v", event, err)
		}
		if !event.Time.Equal(same.Time) {
			t.Errorf("%s became %s", event.Time, same.Time)
		}
		event.Time = same.Time
		if len(event.Data) == 0 && len(same.Data) == 0 {
			event.Data, same.Data = nil, nil
		}
		if !reflect.DeepEqual(event, same) {
			t.Errorf("%+v became %+v", event, same)
		}
	})
}

// A text that is accepted as the type of an event is how that type is written.
func FuzzParseType(f *testing.F) {
	f.Add("io.open-cluster-management.works.v1alpha1.manifestbundles.spec.create_request")
	f.Add("a.b.c.status.resync_request")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := ParseType(text)
		if err == nil && parsed.String() != text {
			t.Errorf("%q is read as %q", text, parsed)
		}
	})
}
