package repairclient

import (
	"bytes"
	"context"
	"encoding/json"
	"path"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Status implements client.Client.
func (c *repairClient) Status() client.SubResourceWriter {
	return &statusWriter{SubResourceWriter: c.Client.Status(), client: c}
}

type statusWriter struct {
	client.SubResourceWriter
	client *repairClient
}

// Update implements client.SubResourceWriter.
func (w *statusWriter) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	content, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	return w.client.write(w.client.statuses, obj, statusWithoutTimes(content), func() error {
		return w.SubResourceWriter.Update(ctx, obj, opts...)
	})
}

// Patch implements client.SubResourceWriter.
func (w *statusWriter) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	content, err := patch.Data(obj)
	if err != nil {
		return err
	}
	send := func() error {
		return w.SubResourceWriter.Patch(ctx, obj, client.RawPatch(patch.Type(), content), opts...)
	}
	if obj.GetResourceVersion() == "" { // as for the object itself
		return send()
	}
	return w.client.write(w.client.statuses, obj, statusWithoutTimes(content), send)
}

// statusWithoutTimes is the status in an object or patch, without what differs though the same is said again. Other times, such as the one
// of the last scores, are news.
func statusWithoutTimes(content []byte) []byte {
	if bytes.HasPrefix(content, []byte("[")) {
		return statusOperationsWithoutTimes(content)
	}
	var sent struct {
		Status any `json:"status"`
	}
	if json.Unmarshal(content, &sent) != nil {
		return content
	}
	removeTimes(sent.Status)
	without, err := json.Marshal(sent.Status)
	if err != nil {
		return content
	}
	return without
}

// statusOperationsWithoutTimes is statusWithoutTimes for a JSON patch.
func statusOperationsWithoutTimes(content []byte) []byte {
	content = operationsWithoutTimes(content)
	var operations []operation
	if json.Unmarshal(content, &operations) != nil {
		return content
	}
	operations = slices.DeleteFunc(operations, func(o operation) bool { return slices.Contains(timesOfStatus, path.Base(o.Path)) })
	for i := range operations {
		operations[i].Value = valueWithoutTimes(operations[i].Value)
	}
	without, err := json.Marshal(operations)
	if err != nil {
		return content
	}
	return without
}

func valueWithoutTimes(content json.RawMessage) json.RawMessage {
	var value any
	if json.Unmarshal(content, &value) != nil {
		return content
	}
	removeTimes(value)
	without, err := json.Marshal(value)
	if err != nil {
		return content
	}
	return without
}

// timesOfStatus are the fields with times at which conditions, and statuses themselves, were set.
var timesOfStatus = []string{"lastTransitionTime", "lastUpdateTime"}

// removeTimes removes timesOfStatus, however deep.
func removeTimes(value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range timesOfStatus {
			delete(value, name)
		}
		for _, inner := range value {
			removeTimes(inner)
		}
	case []any:
		for _, inner := range value {
			removeTimes(inner)
		}
	}
}
