// Package controllerclient is for the packages that reach a managed cluster by a client of controller-runtime.
package controllerclient

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/tokenaccounts"
)

// On returns the cluster of a client without a cache.
func On(c client.Client) tokenaccounts.Cluster { return cluster{c} }

type cluster struct{ client client.Client }

// Namespaces implements tokenaccounts.Cluster.
func (c cluster) Namespaces(ctx context.Context) ([]corev1.Namespace, error) {
	list := &corev1.NamespaceList{}
	err := c.client.List(ctx, list)
	return list.Items, err
}

// Accounts implements tokenaccounts.Cluster.
func (c cluster) Accounts(ctx context.Context, namespace string) ([]corev1.ServiceAccount, error) {
	list := &corev1.ServiceAccountList{}
	err := c.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels(tokenaccounts.Labels))
	return list.Items, err
}

// Delete implements tokenaccounts.Cluster.
func (c cluster) Delete(ctx context.Context, account *corev1.ServiceAccount) error {
	return c.client.Delete(ctx, account, client.Preconditions{UID: &account.UID})
}
