package mqtt

import (
	"fmt"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

// Names of the attributes of an event in the user properties of a message, as in the MQTT binding of CloudEvents:
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/mqtt-protocol-binding.md.
const (
	propertyID          = "id"
	propertySource      = "source"
	propertySpecVersion = "specversion"
	propertyType        = "type"
	propertyTime        = "time"
	jsonMediaType       = "application/json"
)

// toMessage is the event in binary mode, with the topic and the quality of service still to be set.
func toMessage(event *cloudevents.Event) *paho.Publish {
	properties := paho.UserProperties{}
	properties.Add(propertyID, event.ID)
	properties.Add(propertySource, event.Source)
	properties.Add(propertySpecVersion, cloudevents.SpecVersion)
	properties.Add(propertyType, event.Type)
	if !event.Time.IsZero() {
		properties.Add(propertyTime, event.Time.Format(time.RFC3339Nano))
	}
	for extension := range event.Extensions {
		properties.Add(extension, event.Text(extension))
	}
	message := &paho.Publish{Payload: event.Data, Properties: &paho.PublishProperties{User: properties}}
	if len(event.Data) > 0 {
		message.Properties.ContentType = jsonMediaType
	}
	return message
}

// fromMessage fails for what is no event of version 1.0 in binary mode.
func fromMessage(message *paho.Publish) (*cloudevents.Event, error) {
	event := &cloudevents.Event{Extensions: map[string]any{}, Data: message.Payload}
	version := ""
	if message.Properties == nil {
		message.Properties = &paho.PublishProperties{}
	}
	for _, property := range message.Properties.User {
		switch property.Key {
		case propertyID:
			event.ID = property.Value
		case propertySource:
			event.Source = property.Value
		case propertyType:
			event.Type = property.Value
		case propertySpecVersion:
			version = property.Value
		case propertyTime:
			at, err := time.Parse(time.RFC3339Nano, property.Value)
			if err != nil {
				return nil, fmt.Errorf("the time of the event is %q, want one such as 2026-01-02T15:04:05Z", property.Value)
			}
			event.Time = at
		default:
			event.Extensions[property.Key] = property.Value
		}
	}
	for name, value := range map[string]string{propertyID: event.ID, propertySource: event.Source, propertyType: event.Type} {
		if value == "" {
			return nil, fmt.Errorf("the message has no property %s", name)
		}
	}
	if version != cloudevents.SpecVersion {
		return nil, fmt.Errorf("event %s has the version %q of CloudEvents, want %s", event.ID, version, cloudevents.SpecVersion)
	}
	return event, nil
}
