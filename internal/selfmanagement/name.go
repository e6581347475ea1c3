package selfmanagement

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	clusterVersions = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "clusterversions"}
)

// identify finds out the names of the cluster, unless it was given one, and of the agent.
func (s *self) identify(ctx context.Context, cluster dynamic.Interface) (err error) {
	if s.name = s.ClusterName; s.name == "" {
		if s.name, err = clusterID(ctx, cluster); err != nil {
			return fmt.Errorf("cluster %s: %w", s.Managed.Host, err)
		}
	}
	s.agent, err = agentID(ctx, s.direct)
	return err
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
		return "", fmt.Errorf("read the UID of namespace %s of the hub: %w", metav1.NamespaceSystem, err)
	}
	return agentName + "-" + string(system.UID), nil
}
