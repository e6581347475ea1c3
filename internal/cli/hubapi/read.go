package hubapi

import (
	"context"
	"encoding/json"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ReadIfServed reads an object, and leaves into as it is if the hub does not have it.
func (h *Hub) ReadIfServed(ctx context.Context, into any, path ...string) error {
	body, err := h.Raw().Get().AbsPath(path...).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return h.Explain("get "+strings.Join(path, "/"), err)
	}
	return json.Unmarshal(body, into)
}

// ListIfServed reads the items of a list, none where the hub does not serve the kind.
func (h *Hub) ListIfServed(ctx context.Context, items any, path ...string) error {
	return h.ReadIfServed(ctx, &struct {
		Items any `json:"items"`
	}{items}, path...)
}
