package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// defaultLeaseDuration is what the schema fills in for spec.leaseDurationSeconds before admission.
const defaultLeaseDuration = 60

// requestToJoin checks a new ManagedCluster of a joining agent, and records its requester. An administrator who accepts the cluster
// checks its name: a set or labels of the requester's choice would bring it works and secrets for other clusters, taints and finalizers
// would hinder administrators, and owner references would have it deleted. Only what the requester sent is checked, so that other
// admission plugins of the hub may label new clusters.
func requestToJoin(cluster *clusterv1.ManagedCluster, requester, credential string) error {
	spec := cluster.Spec.DeepCopy()
	spec.ManagedClusterClientConfigs = nil
	spec.HubAcceptsClient = false // ValidateManagedCluster requires the permission.
	if spec.LeaseDurationSeconds == defaultLeaseDuration {
		spec.LeaseDurationSeconds = 0
	}
	metadata := field.NewPath("metadata")
	for _, part := range []struct {
		path  *field.Path
		unset bool
	}{
		{metadata.Child("labels"), len(cluster.Labels) == 0},
		{metadata.Child("annotations").Key(foreignAnnotation(cluster)), foreignAnnotation(cluster) == ""},
		{metadata.Child("finalizers"), len(cluster.Finalizers) == 0},
		{metadata.Child("ownerReferences"), len(cluster.OwnerReferences) == 0},
		{field.NewPath("spec", "taints"), len(spec.Taints) == 0},
		{field.NewPath("spec", "leaseDurationSeconds"), spec.LeaseDurationSeconds == 0},
		{field.NewPath("spec"), equality.Semantic.DeepEqual(*spec, clusterv1.ManagedClusterSpec{})},
	} {
		if !part.unset {
			return apierrors.NewForbidden(managedClusterResource, cluster.Name, fmt.Errorf(
				"user %q has a bootstrap credential and cannot set %s: leave it out; a cluster that asks to join has a name, "+
					"spec.managedClusterClientConfigs and annotations that begin with %s, the rest is for administrators of the hub",
				requester, part.path, fleet.AnnotationAgentPrefix))
		}
	}
	metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, fleet.AnnotationRequestedBy, requester)
	metav1.SetMetaDataLabel(&cluster.ObjectMeta, fleet.LabelRequestedBy, fleet.RequesterLabel(requester))
	if credential != "" {
		metav1.SetMetaDataLabel(&cluster.ObjectMeta, fleet.LabelRequestedWith, fleet.RequesterLabel(credential))
	}
	return nil
}

// ForwardedRequester returns who has the gRPC server create a cluster, and takes it off the cluster. Whoever it is, the cluster is one
// that is joining: administrators do not use the gRPC server.
func ForwardedRequester(cluster *clusterv1.ManagedCluster, server string) string {
	requester := cluster.Annotations[fleet.AnnotationRequestedBy]
	delete(cluster.Annotations, fleet.AnnotationRequestedBy)
	if requester == "" {
		return server
	}
	return requester
}

// foreignAnnotation returns the first annotation that an agent may not set; empty if there is none.
func foreignAnnotation(cluster *clusterv1.ManagedCluster) string {
	for _, name := range slices.Sorted(maps.Keys(cluster.Annotations)) {
		if !strings.HasPrefix(name, fleet.AnnotationAgentPrefix) {
			return name
		}
	}
	return ""
}

// validateFreeName refuses to a joining agent a name whose namespace is not that of a cluster: once the cluster is accepted, its agent
// reads and writes there. The namespace of a former cluster of the same name stays after its deletion, and has its label.
func validateFreeName(ctx context.Context, cluster string, sender Sender, namespaces NamespaceGetter) error {
	namespace, err := namespaces(ctx, cluster)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return apierrors.NewForbidden(managedClusterResource, cluster, fmt.Errorf("the namespace %q of the cluster could not be read: %w",
			cluster, err))
	case namespace.Labels[fleet.LabelClusterName] == cluster:
		return nil
	}
	return apierrors.NewForbidden(managedClusterResource, cluster, fmt.Errorf(
		"user %q has a bootstrap credential and cannot take the name %q: the hub has a namespace of this name that is no cluster's. Choose another name; "+
			"if the namespace is meant for this cluster, an administrator of the hub labels it %s=%s first, or creates the ManagedCluster",
		sender.Name, cluster, fleet.LabelClusterName, cluster))
}
