// Package cloudevents has the events in which hubs and agents exchange resources where the API of the hub is not the transport: their
// types, their attributes, and their form on the wire of gRPC. What events of a broker such as MQTT have is the same.
//
// The specification of CloudEvents is https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md.
package cloudevents

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/capstan-io/capstan/internal/cloudevents/pb"
)

// Extensions of events. Values are texts, but for the resource version and the time of deletion.
const (
	ExtensionClusterName     = "clustername"
	ExtensionOriginalSource  = "originalsource"
	ExtensionResourceID      = "resourceid"
	ExtensionResourceVersion = "resourceversion"
	ExtensionSequenceID      = "sequenceid"
	ExtensionDeletedAt       = "deletiontimestamp"
	ExtensionStatusHash      = "statushash"
	ExtensionMetadata        = "metadata"
	ExtensionLogTracing      = "logtracing"
)

// SourceHub is the source of the events of a hub.
const SourceHub = "kube"

// HeaderSubscriptionID is the header by which a server says that a subscription has begun. Its value is an ID of the subscription.
const HeaderSubscriptionID = "subscription-id"

// MetadataAuthorization of a call has "Bearer TOKEN", with a token of the hub.
const MetadataAuthorization = "authorization"

// SpecVersion is the version of CloudEvents that events have.
const SpecVersion = "1.0"

const (
	jsonMediaType      = "application/json"
	attributePrefix    = "ce-"
	attributeTime      = attributePrefix + "time"
	attributeMediaType = "contenttype"
)

// Event is an event with JSON data, or without any.
type Event struct {
	// ID and Source identify the event; Source is also who sent it.
	ID, Source string
	// Type is that of [Type], or [Heartbeat].
	Type string
	Time time.Time
	// Extensions have values of the types string, bool, int32 and [time.Time].
	Extensions map[string]any
	Data       []byte
}

// New returns an event of now, from a source, with an ID of its own.
func New(source string, eventType Type, now time.Time) *Event {
	return &Event{ID: uuid.NewString(), Source: source, Type: eventType.String(), Time: now, Extensions: map[string]any{}}
}

// Text returns an extension as text; an empty one if the event does not have it.
func (e *Event) Text(extension string) string {
	switch value := e.Extensions[extension].(type) {
	case nil:
		return ""
	case time.Time:
		return value.Format(time.RFC3339)
	default:
		return fmt.Sprint(value)
	}
}

// Integer returns an extension that is a number, or the text of one; 0 if the event does not have it.
func (e *Event) Integer(extension string) (int64, error) {
	text := e.Text(extension)
	if text == "" {
		return 0, nil
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("extension %s of event %s is %q, want a number", extension, e.ID, text)
	}
	return number, nil
}

// Timestamp returns an extension that is a time, or the text of one; nil if the event does not have it.
func (e *Event) Timestamp(extension string) (*time.Time, error) {
	if value, ok := e.Extensions[extension].(time.Time); ok {
		return &value, nil
	}
	text := e.Text(extension)
	if text == "" {
		return nil, nil
	}
	value, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, fmt.Errorf("extension %s of event %s is %q, want a time such as 2026-01-02T15:04:05Z", extension, e.ID, text)
	}
	return &value, nil
}

// ToProto returns the event in binary mode.
func (e *Event) ToProto() (*pb.CloudEvent, error) {
	event := &pb.CloudEvent{Id: e.ID, Source: e.Source, SpecVersion: SpecVersion, Type: e.Type,
		Attributes: map[string]*pb.CloudEvent_CloudEventAttributeValue{}}
	if !e.Time.IsZero() {
		event.Attributes[attributeTime] = timestampOf(e.Time)
	}
	for name, value := range e.Extensions {
		attribute, err := attributeOf(value)
		if err != nil {
			return nil, fmt.Errorf("extension %s of event %s: %w", name, e.ID, err)
		}
		event.Attributes[attributePrefix+name] = attribute
	}
	if len(e.Data) > 0 {
		event.Attributes[attributeMediaType] = textOf(jsonMediaType)
		event.Data = &pb.CloudEvent_BinaryData{BinaryData: e.Data}
	}
	return event, nil
}

func attributeOf(value any) (*pb.CloudEvent_CloudEventAttributeValue, error) {
	switch value := value.(type) {
	case string:
		return textOf(value), nil
	case bool:
		return &pb.CloudEvent_CloudEventAttributeValue{Attr: &pb.CloudEvent_CloudEventAttributeValue_CeBoolean{CeBoolean: value}}, nil
	case int32:
		return &pb.CloudEvent_CloudEventAttributeValue{Attr: &pb.CloudEvent_CloudEventAttributeValue_CeInteger{CeInteger: value}}, nil
	case time.Time:
		return timestampOf(value), nil
	}
	return nil, fmt.Errorf("its value is a %T, want a text, a truth value, a number of 32 bits or a time", value)
}

func textOf(value string) *pb.CloudEvent_CloudEventAttributeValue {
	return &pb.CloudEvent_CloudEventAttributeValue{Attr: &pb.CloudEvent_CloudEventAttributeValue_CeString{CeString: value}}
}

func timestampOf(value time.Time) *pb.CloudEvent_CloudEventAttributeValue {
	timestamp := &pb.CloudEvent_CloudEventAttributeValue_CeTimestamp{CeTimestamp: timestamppb.New(value)}
	return &pb.CloudEvent_CloudEventAttributeValue{Attr: timestamp}
}

// FromProto returns an event that has come over the wire. It fails for what no event of version 1.0 looks like.
func FromProto(event *pb.CloudEvent) (*Event, error) {
	e := &Event{ID: event.GetId(), Source: event.GetSource(), Type: event.GetType(), Extensions: map[string]any{}}
	switch {
	case e.ID == "":
		return nil, fmt.Errorf("the event has no id")
	case e.Source == "":
		return nil, fmt.Errorf("event %s has no source", e.ID)
	case e.Type == "":
		return nil, fmt.Errorf("event %s has no type", e.ID)
	case event.GetSpecVersion() != SpecVersion:
		return nil, fmt.Errorf("event %s has the version %q of CloudEvents, want %s", e.ID, event.GetSpecVersion(), SpecVersion)
	}
	for name, value := range maps.All(event.GetAttributes()) {
		extension, isExtension := strings.CutPrefix(name, attributePrefix)
		switch {
		case name == attributeTime:
			if e.Time = value.GetCeTimestamp().AsTime(); value.GetCeTimestamp() == nil {
				at, err := time.Parse(time.RFC3339Nano, value.GetCeString())
				if err != nil {
					return nil, fmt.Errorf("the time of event %s cannot be read: %w", e.ID, err)
				}
				e.Time = at
			}
		case isExtension:
			e.Extensions[extension] = valueOf(value)
		}
	}
	switch data := event.GetData().(type) {
	case *pb.CloudEvent_BinaryData:
		e.Data = data.BinaryData
	case *pb.CloudEvent_TextData:
		e.Data = []byte(data.TextData)
	case *pb.CloudEvent_ProtoData:
		return nil, fmt.Errorf("event %s has data in protobuf, want JSON", e.ID)
	}
	return e, nil
}

func valueOf(value *pb.CloudEvent_CloudEventAttributeValue) any {
	switch value := value.GetAttr().(type) {
	case *pb.CloudEvent_CloudEventAttributeValue_CeBoolean:
		return value.CeBoolean
	case *pb.CloudEvent_CloudEventAttributeValue_CeInteger:
		return value.CeInteger
	case *pb.CloudEvent_CloudEventAttributeValue_CeTimestamp:
		return value.CeTimestamp.AsTime()
	case *pb.CloudEvent_CloudEventAttributeValue_CeBytes:
		return string(value.CeBytes)
	case *pb.CloudEvent_CloudEventAttributeValue_CeUri:
		return value.CeUri
	case *pb.CloudEvent_CloudEventAttributeValue_CeUriRef:
		return value.CeUriRef
	case *pb.CloudEvent_CloudEventAttributeValue_CeString:
		return value.CeString
	}
	return ""
}

// Subscription is a stream of events to an agent.
type Subscription interface {
	// Receive returns the next event. It fails when the subscription has ended.
	Receive() (*Event, error)
	// End ends the subscription, so that Receive fails with the reason.
	End(reason error)
	// Close frees what belongs to the subscription.
	Close()
}
