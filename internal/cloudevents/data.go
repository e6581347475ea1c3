package cloudevents

import (
	"encoding/json"
	"fmt"
)

// SetData makes a value, as JSON, the data of the event.
func (e *Event) SetData(value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("the data of event %s, which is a %T: %w", e.ID, value, err)
	}
	e.Data = data
	return nil
}

// ReadData reads the data of the event into what a pointer points to. It fails for an event without data.
func (e *Event) ReadData(into any) error {
	if len(e.Data) == 0 {
		return fmt.Errorf("event %s of type %s has no data, want a %T as JSON", e.ID, e.Type, into)
	}
	if err := json.Unmarshal(e.Data, into); err != nil {
		return fmt.Errorf("the data of event %s of type %s: %w", e.ID, e.Type, err)
	}
	return nil
}
