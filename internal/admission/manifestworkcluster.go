package admission

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	decided "github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

var manifestWorkResource = workv1.GroupVersion.WithResource("manifestworks").GroupResource()

// ClusterGetter reads a ManagedCluster of the hub. One that does not exist is an error for which apierrors.IsNotFound is true.
type ClusterGetter func(ctx context.Context, name string, options metav1.GetOptions) (*clusterv1.ManagedCluster, error)

// validateCluster refuses new content for a cluster that is denied or being deleted: its agent may still read the existing works, to
// clean up, and may be compromised. The hooks of an add-on that is being removed are part of the cleanup of a deleted cluster. If there
// is no cluster of the name, or it is neither accepted nor denied, no agent can read anything yet.
//
// The cluster is read from the API server's cache, which may lag by a moment: a work that arrives at the same time as a denial could as
// well have arrived before it. A refusal is confirmed by a read from the storage, so that a cluster takes works as soon as it is
// accepted again.
func validateCluster(ctx context.Context, work, old *workv1.ManifestWork, clusters ClusterGetter) error {
	if clusters == nil || old != nil && !addsManifests(work, old) {
		return nil
	}
	const anyVersion = "0"
	err := clusterTakes(ctx, work, clusters, metav1.GetOptions{ResourceVersion: anyVersion})
	if err != nil {
		err = clusterTakes(ctx, work, clusters, metav1.GetOptions{})
	}
	return err
}

func clusterTakes(ctx context.Context, work *workv1.ManifestWork, clusters ClusterGetter, options metav1.GetOptions) error {
	cluster, err := clusters(ctx, work.Namespace, options)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return apierrors.NewForbidden(manifestWorkResource, work.Name, fmt.Errorf(
			"it could not be found out whether cluster %q takes works, for which its ManagedCluster is read: %w", work.Namespace, err))
	case decided.Denied(cluster):
		return takesNoWorks(work, cluster.Name, fmt.Errorf(
			"cluster %q is denied (spec.hubAcceptsClient of its ManagedCluster is false) and gets nothing new: accept it first, as with capstan accept --clusters %s",
			cluster.Name, cluster.Name))
	case !cluster.DeletionTimestamp.IsZero() && !isHook(work):
		return takesNoWorks(work, cluster.Name, fmt.Errorf(
			"cluster %q is being deleted and gets nothing new: choose another cluster, or wait until its ManagedCluster is gone and has joined again", cluster.Name))
	}
	return nil
}

// addsManifests reports whether an update adds content to what a cluster has. Removals are always allowed.
func addsManifests(work, old *workv1.ManifestWork) bool {
	existing := make(map[string]bool, len(old.Spec.Workload.Manifests))
	for _, manifest := range old.Spec.Workload.Manifests {
		existing[string(manifest.Raw)] = true
	}
	return slices.ContainsFunc(work.Spec.Workload.Manifests, func(manifest workv1.Manifest) bool { return !existing[string(manifest.Raw)] })
}

// isHook reports whether a work has the pre-delete hooks of an add-on, by the name that all managers of add-ons give it.
func isHook(work *workv1.ManifestWork) bool {
	addOn, namespace := work.Labels[fleet.LabelAddOnName], work.Labels[fleet.LabelAddOnNamespace]
	return addOn != "" && (work.Name == fleet.AddOnPreDeleteWork(addOn) || namespace != "" &&
		work.Name == fleet.AddOnHostingPreDeleteWork(addOn, namespace))
}

func takesNoWorks(work *workv1.ManifestWork, cluster string, why error) error {
	err := apierrors.NewForbidden(manifestWorkResource, work.Name, why)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: fleet.CauseClusterTakesNoWorks, Message: fmt.Sprintf("cluster %q gets nothing new", cluster), Field: "metadata.namespace",
	})
	return err
}
