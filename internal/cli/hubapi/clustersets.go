package hubapi

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// HasNamespace tells whether the hub has a namespace.
func (h *Hub) HasNamespace(ctx context.Context, name string) (bool, error) {
	err := h.Client(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, name, nil)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, h.Explain("look for namespace "+name, err)
}
