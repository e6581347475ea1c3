package mqtt

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

// prefix is before the names of attributes and extensions in the user properties of a message: that is how the Go SDK of CloudEvents, and
// with it Open Cluster Management, writes and reads them. The MQTT binding has none, and what comes without one is read, too:
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/mqtt-protocol-binding.md.
const prefix = "ce-"

// Names of the attributes of an event.
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
	add := func(name, value string) { properties.Add(prefix+name, value) }
	add(propertyID, event.ID)
	add(propertySource, event.Source)
	add(propertySpecVersion, cloudevents.SpecVersion)
	add(propertyType, event.Type)
	if !event.Time.IsZero() {
		add(propertyTime, event.Time.Format(time.RFC3339Nano))
	}
	for extension := range event.Extensions {
		add(extension, event.Text(extension))
	}
	message := &paho.Publish{Payload: event.Data, Properties: &paho.PublishProperties{User: properties}}
	if len(event.Data) > 0 {
		message.Properties.ContentType = jsonMediaType
	}
	return message
}

// mostProperty is how many bytes of a property MQTT carries. What is longer would be cut.
const mostProperty = math.MaxUint16

// checkSize fails for a message that would not arrive as it is. limit is how many bytes the broker takes, 0 for any number: it ends the
// connection when it gets more.
func checkSize(message *paho.Publish, limit uint32) error {
	for _, property := range message.Properties.User {
		if len(property.Value) > mostProperty {
			return fmt.Errorf("%w: its property %s has %d bytes, and MQTT carries at most %d; shorten labels and annotations of the resource",
				cloudevents.ErrTooLarge, property.Key, len(property.Value), mostProperty)
		}
	}
	size, err := message.Packet().WriteTo(io.Discard)
	if err != nil {
		return err
	}
	if limit > 0 && size > int64(limit) {
		return fmt.Errorf("%w: it has %d bytes, and the MQTT broker takes at most %d; raise its maximum packet size, or split the resource",
			cloudevents.ErrTooLarge, size, limit)
	}
	return nil
}

// maximumPacketSize is how many bytes a broker says that it takes at once; 0 if it does not say.
func maximumPacketSize(answer *paho.Connack) uint32 {
	if answer.Properties == nil || answer.Properties.MaximumPacketSize == nil {
		return 0
	}
	return *answer.Properties.MaximumPacketSize
}

// fromMessage fails for what is no event of version 1.0 in binary mode.
func fromMessage(message *paho.Publish) (*cloudevents.Event, error) {
	event := &cloudevents.Event{Extensions: map[string]any{}, Data: message.Payload}
	version := ""
	if message.Properties == nil {
		message.Properties = &paho.PublishProperties{}
	}
	for _, property := range message.Properties.User {
		switch name := strings.TrimPrefix(property.Key, prefix); name {
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
			event.Extensions[name] = property.Value
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
