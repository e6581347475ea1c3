package manifestbundle

import (
	"testing"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

// Whatever an event says of a work, reading it does not crash, and yields a work that can be sent on.
func FuzzDecode(f *testing.F) {
	work := newWork()
	for _, encode := range []func() (*cloudevents.Event, error){
		func() (*cloudevents.Event, error) { return EncodeSpec("kube", cloudevents.Create, work, now) },
		func() (*cloudevents.Event, error) { return EncodeStatus("agent", cloudevents.Update, work, "1", now) },
	} {
		event, err := encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(event.Type, event.Text(cloudevents.ExtensionMetadata), event.Text(cloudevents.ExtensionResourceID), "7", "", event.Data)
	}
	f.Fuzz(func(t *testing.T, eventType, metadata, id, version, deleted string, data []byte) {
		event := &cloudevents.Event{ID: "id", Source: "source", Type: eventType, Data: data, Extensions: map[string]any{
			cloudevents.ExtensionMetadata: metadata, cloudevents.ExtensionResourceID: id, cloudevents.ExtensionResourceVersion: version,
			cloudevents.ExtensionClusterName: "c1",
		}}
		if deleted != "" {
			event.Extensions[cloudevents.ExtensionDeletedAt] = deleted
		}
		if work, err := DecodeSpec(event); err == nil {
			if _, err := EncodeSpec("kube", cloudevents.Update, work, now); err != nil {
				t.Errorf("a work that was read cannot be sent on: %v", err)
			}
		}
		if work, err := DecodeStatus(event); err == nil {
			if _, err := EncodeStatus("agent", cloudevents.Update, work, "1", now); err != nil {
				t.Errorf("a status that was read cannot be sent on: %v", err)
			}
		}
	})
}
