package admission

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// validateCAPICluster checks that a sender that names a cluster of Cluster API in another namespace than the ManagedCluster's may read the
// kubeconfig of it: the hub installs the agent with that under its own identity, which may read those of all namespaces. An update is
// checked only for what it changes.
func validateCAPICluster(ctx context.Context, cluster, old *clusterv1.ManagedCluster, sender Sender) error {
	const annotation = fleet.AnnotationCAPICluster
	namespace, name, valid := managedcluster.CAPICluster(cluster)
	if !valid || namespace == cluster.Name || old != nil && old.Annotations[annotation] == cluster.Annotations[annotation] {
		return nil
	}
	err := sender.may(ctx, authorizationv1.ResourceAttributes{Resource: "secrets", Verb: "get", Namespace: namespace,
		Name: name + fleet.SuffixCAPIKubeconfig})
	if err != nil {
		return apierrors.NewForbidden(managedClusterResource, cluster.Name, fmt.Errorf("user %q cannot have the cluster %s/%s imported by %s: %w",
			sender.Name, namespace, name, field.NewPath("metadata", "annotations").Key(annotation), err))
	}
	return nil
}
