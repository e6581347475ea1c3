package selfmanagement

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nameRetry is the pause after the cluster did not say how it is called.
const nameRetry = 5 * time.Second

var (
	namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	clusterVersions = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "clusterversions"}
)

// findName asks the cluster for its ID unless it has a name, for as long as that takes.
func (s *self) findName(ctx context.Context) error {
	if s.name = s.ClusterName; s.name != "" {
		return nil
	}
	cluster, err := dynamic.NewForConfig(s.Managed)
	if err != nil {
		return fmt.Errorf("self-management: reach the cluster: %w", err)
	}
	for {
		if s.name, err = clusterID(ctx, cluster); err == nil {
			return nil
		}
		ctrl.LoggerFrom(ctx).Error(err, "Self-management does not begin yet: the cluster does not tell its ID", "cluster", s.Managed.Host,
			"after", nameRetry.String())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(nameRetry):
		}
	}
}

// clusterID is the one that OpenShift gives, or else the UID of the namespace that every cluster has.
func clusterID(ctx context.Context, cluster dynamic.Interface) (string, error) {
	version, err := cluster.Resource(clusterVersions).Get(ctx, "version", metav1.GetOptions{})
	if err == nil {
		id, _, err := unstructured.NestedString(version.Object, "spec", "clusterID")
		if err == nil && id == "" {
			err = errors.New("there is none")
		}
		if err != nil {
			return "", fmt.Errorf("read spec.clusterID of ClusterVersion version: %w", err)
		}
		return id, nil
	}
	if !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("look for an ID of OpenShift: %w", err)
	}
	system, err := cluster.Resource(namespaces).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read the UID of the system's namespace: %w", err)
	}
	return string(system.GetUID()), nil
}

// agentID is the same in all replicas of a hub, as one goes on with what another has applied, and another one on each hub, as several may
// manage the same cluster: an agent removes what it has applied for another hub than it has now.
func agentID(ctx context.Context, hub client.Reader) (string, error) {
	system := &corev1.Namespace{}
	if err := hub.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", fmt.Errorf("self-management: read the UID of namespace %s of the hub: %w", metav1.NamespaceSystem, err)
	}
	return agentName + "-" + string(system.UID), nil
}
