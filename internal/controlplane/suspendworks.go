package controlplane

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/controlplane/backup"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// suspendWorks has agents leave their clusters as they are if the hub was restored so. An administrator ends that later.
func (h *hub) suspendWorks(ctx context.Context) error {
	marker := backup.SuspendWorksFile(h.Config.DataDirectory)
	if _, err := os.Stat(marker); err != nil {
		return nil //nolint:nilerr // the hub was not restored, or not so
	}
	if err := ensureNamespaces(ctx, h.client, fleet.NamespaceHub); err != nil {
		return err
	}
	suspended := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: fleet.ConfigMapWorksHeld}}
	_, err := h.client.CoreV1().ConfigMaps(fleet.NamespaceHub).Create(ctx, suspended, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("hold what agents would change their clusters by: %w", err)
	}
	return os.Remove(marker)
}
