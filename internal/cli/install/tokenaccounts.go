package install

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/tokenaccounts"
)

var serviceAccounts = corev1.SchemeGroupVersion.WithResource("serviceaccounts")

// removeTokenAccounts ends the tokens of a managed cluster that its hub has: those of the service accounts that an agent keeps for
// ManagedServiceAccounts.
func removeTokenAccounts(ctx context.Context, managed *hubapi.Hub, agent string) error {
	return tokenaccounts.RemoveOf(ctx, accountsOn{managed}, agent)
}

// accountsOn has the service accounts of a managed cluster.
type accountsOn struct{ managed *hubapi.Hub }

// Namespaces implements tokenaccounts.Cluster.
func (a accountsOn) Namespaces(ctx context.Context) ([]corev1.Namespace, error) {
	list := &corev1.NamespaceList{}
	err := a.managed.Client(corev1.SchemeGroupVersion.WithResource("namespaces")).List(ctx, metav1.ListOptions{}, list)
	return list.Items, err
}

// Accounts implements tokenaccounts.Cluster.
func (a accountsOn) Accounts(ctx context.Context, namespace string) ([]corev1.ServiceAccount, error) {
	list := &corev1.ServiceAccountList{}
	marked := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(tokenaccounts.Labels).String()}
	err := a.managed.Client(serviceAccounts).Namespace(namespace).List(ctx, marked, list)
	return list.Items, err
}

// Delete implements tokenaccounts.Cluster.
func (a accountsOn) Delete(ctx context.Context, account *corev1.ServiceAccount) error {
	only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &account.UID}}
	return a.managed.Objects().Resource(serviceAccounts).Namespace(account.Namespace).Delete(ctx, account.Name, only)
}
