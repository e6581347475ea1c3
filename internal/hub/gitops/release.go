package gitops

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/capstan-io/capstan/api/apps/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// releaser releases Secrets of a GitOpsCluster: another one of the same Argo CD and account gets those for clusters that it selects, so
// that the Argo CD knows them all the time.
type releaser struct {
	*Controller
	from types.NamespacedName
	// registration is that of the GitOpsCluster whose Secrets they are.
	registration *registration
	// newOwners are the GitOpsClusters that get Secrets; nil until they are needed.
	newOwners map[ownedSecret]*appsv1beta1.GitOpsCluster
}

// ownedSecret is a cluster, and the Secret by which an Argo CD knows it.
type ownedSecret struct {
	secret  types.NamespacedName
	cluster string
}

// release gives a Secret to another GitOpsCluster that has the same for its cluster, or else deletes it. The Secret of a cluster that is
// still selected is not the one that there has to be, and nobody gets it.
func (r *releaser) release(ctx context.Context, secret *corev1.Secret) error {
	cluster := clusterOf(secret)
	if !r.registration.selects(cluster) {
		newOwner, err := r.newOwner(ctx, secret)
		if err != nil {
			return err
		}
		if newOwner != nil {
			given := secret.DeepCopy()
			given.Annotations[fleet.AnnotationGitOpsCluster] = client.ObjectKeyFromObject(newOwner).String()
			_, err := patch.Object(ctx, r.c.Secrets, given, secret)
			return client.IgnoreNotFound(err)
		}
	}
	if err := r.remove(ctx, secret); err != nil {
		return err
	}
	r.registration.removed = append(r.registration.removed, cluster)
	return nil
}

// newOwner is the GitOpsCluster that gets a Secret; nil if there is none.
func (r *releaser) newOwner(ctx context.Context, secret *corev1.Secret) (*appsv1beta1.GitOpsCluster, error) {
	if r.newOwners == nil {
		if err := r.findNewOwners(ctx); err != nil {
			return nil, err
		}
	}
	newOwner := r.newOwners[ownedSecret{client.ObjectKeyFromObject(secret), clusterOf(secret)}]
	if newOwner == nil {
		return nil, nil
	}
	if given, err := r.isGiven(ctx, newOwner, secret); err != nil || !given {
		return nil, err
	}
	return newOwner, nil
}

func (r *releaser) findNewOwners(ctx context.Context) error {
	others, err := r.others(ctx, r.from)
	if err != nil {
		return err
	}
	newOwners := map[ownedSecret]*appsv1beta1.GitOpsCluster{}
	for i := range others {
		other := &others[i]
		clusters, err := r.clusters(ctx, other, newRegistration(other))
		if err != nil {
			return err
		}
		for _, cluster := range clusters {
			for _, name := range names(other, cluster) {
				newOwners[ownedSecret{types.NamespacedName{Namespace: argoNamespace(other), Name: name}, cluster}] = other
			}
		}
	}
	r.newOwners = newOwners
	return nil
}

// others are the GitOpsClusters, but for one, that may register clusters.
func (c *Controller) others(ctx context.Context, than types.NamespacedName) ([]appsv1beta1.GitOpsCluster, error) {
	list := &appsv1beta1.GitOpsClusterList{}
	if err := c.c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list GitOpsClusters: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(g appsv1beta1.GitOpsCluster) bool {
		return client.ObjectKeyFromObject(&g) == than || !g.DeletionTimestamp.IsZero() || checkRef(&g) != nil
	}), nil
}
