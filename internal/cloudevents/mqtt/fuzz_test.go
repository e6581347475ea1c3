package mqtt

import (
	"reflect"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

// Whatever a client of the broker sends, reading it does not crash, and what is accepted means the same when it is sent on.
func FuzzFromMessage(f *testing.F) {
	f.Add("id", "s1", "a.b.c.spec.create_request", cloudevents.SpecVersion, "2026-01-02T15:04:05.1Z", "ce-clustername", "c1", []byte(`{}`))
	f.Add("id", "s1", "a.b.c.spec.resync_request", cloudevents.SpecVersion, "2026-01-02T15:04:05+01:00", "resourceversion", "7", []byte(nil))
	f.Fuzz(func(t *testing.T, id, source, eventType, version, at, extension, value string, payload []byte) {
		properties := paho.UserProperties{}
		for name, text := range map[string]string{propertyID: id, propertySource: source, propertyType: eventType, propertySpecVersion: version,
			propertyTime: at} {
			properties.Add(prefix+name, text)
		}
		properties.Add(extension, value)
		event, err := fromMessage(&paho.Publish{Payload: payload, Properties: &paho.PublishProperties{User: properties}})
		if err != nil {
			return
		}
		if _, err := event.Time.MarshalText(); err != nil {
			return // in a time zone that RFC 3339 does not have, for which Go reads more than it writes
		}
		same, err := fromMessage(toMessage(event))
		if err != nil {
			t.Fatalf("%+v is not accepted again: %v", event, err)
		}
		if !event.Time.Equal(same.Time) {
			t.Errorf("%s became %s", event.Time.Format(time.RFC3339Nano), same.Time.Format(time.RFC3339Nano))
		}
		event.Time = same.Time
		if !reflect.DeepEqual(event, same) {
			t.Errorf("%+v became %+v", event, same)
		}
	})
}
