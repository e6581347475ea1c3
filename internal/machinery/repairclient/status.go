package repairclient

import (
	"bytes"
	"context"
	"encoding/json"

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
		return operationsWithoutTimes(content)
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

// removeTimes removes the times at which conditions, and statuses themselves, were set.
func removeTimes(value any) {
	switch value := value.(type) {
	case map[string]any:
		delete(value, "lastTransitionTime")
		delete(value, "lastUpdateTime")
		for _, inner := range value {
			removeTimes(inner)
		}
	case []any:
		for _, inner := range value {
			removeTimes(inner)
		}
	}
}
