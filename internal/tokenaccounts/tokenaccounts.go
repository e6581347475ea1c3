// Package tokenaccounts deletes the service accounts that agents keep on their clusters for ManagedServiceAccounts, and so ends all tokens
// of them.
package tokenaccounts

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Labels are those of all service accounts of ManagedServiceAccounts.
var Labels = map[string]string{fleet.LabelManagedServiceAccount: fleet.LabelTrue}

// Cluster is a managed cluster, through whatever client.
type Cluster interface {
	// Namespaces lists all namespaces.
	Namespaces(ctx context.Context) ([]corev1.Namespace, error)
	// Accounts lists the service accounts of a namespace that have Labels.
	Accounts(ctx context.Context, namespace string) ([]corev1.ServiceAccount, error)
	// Delete deletes a service account, and no other one of its name.
	Delete(ctx context.Context, account *corev1.ServiceAccount) error
}

// RemoveOf deletes the accounts of an agent that leaves the cluster: those with its ID, in the usual namespace and in all that agents mark.
// What cannot be deleted does not keep the others; the error has all failures.
func RemoveOf(ctx context.Context, on Cluster, agent string) error {
	if agent == "" {
		return nil
	}
	marked, err := markedNamespaces(ctx, on)
	failures := []error{err}
	isOwn := func(account *corev1.ServiceAccount) bool {
		return account.Annotations[fleet.AnnotationAgentID] == agent
	}
	for _, namespace := range sets.List(marked.Insert(fleet.NamespaceAgentAddOn)) {
		accounts, err := List(ctx, on, namespace)
		failures = append(failures, err, Remove(ctx, on, accounts, isOwn))
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("service accounts of ManagedServiceAccounts may stay, with the tokens that the hub has of them: %w", err)
	}
	return nil
}

// markedNamespaces are those that any agent marks, whatever its cluster is called.
func markedNamespaces(ctx context.Context, on Cluster) (sets.Set[string], error) {
	marked := sets.New[string]()
	namespaces, err := on.Namespaces(ctx)
	if err != nil {
		return marked, fmt.Errorf("list the namespaces of the managed cluster: %w", err)
	}
	for i := range namespaces {
		for label := range namespaces[i].Labels {
			if strings.HasPrefix(label, fleet.LabelServiceAccountsPrefix) {
				marked.Insert(namespaces[i].Name)
			}
		}
	}
	return marked, nil
}

// List returns the accounts in a namespace.
func List(ctx context.Context, on Cluster, namespace string) ([]corev1.ServiceAccount, error) {
	accounts, err := on.Accounts(ctx, namespace)
	if err != nil {
		return nil, fmt.Errorf("list the service accounts in namespace %s of the managed cluster: %w", namespace, err)
	}
	return accounts, nil
}

// Remove deletes those of the accounts that are own.
func Remove(ctx context.Context, on Cluster, accounts []corev1.ServiceAccount, isOwn func(*corev1.ServiceAccount) bool) error {
	var failures []error
	for i := range accounts {
		if account := &accounts[i]; isOwn(account) {
			failures = append(failures, RemoveOne(ctx, on, account))
		}
	}
	return errors.Join(failures...)
}

// RemoveOne deletes an account, unless it has gone or another one has its name.
func RemoveOne(ctx context.Context, on Cluster, account *corev1.ServiceAccount) error {
	err := on.Delete(ctx, account)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete service account %s/%s on the managed cluster: %w", account.Namespace, account.Name, err)
	}
	return nil
}
