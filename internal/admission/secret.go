package admission

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// mostSecretBytes is the largest Secret that an agent may write. A token takes about 1 KiB, and a certificate authority 2 KiB.
const mostSecretBytes = 64 << 10

// groupAuthentication is the API group of ManagedServiceAccounts.
const groupAuthentication = "authentication.open-cluster-management.io"

// ValidateSecret allows the agent of a cluster to write the Secrets of ManagedServiceAccounts, and no others. RBAC lets it create and
// update all Secrets in the namespace of its cluster, for it knows no labels. A Secret of another type could be a credential of the hub
// itself: one of type kubernetes.io/service-account-token is filled with a token of a service account of the hub.
func ValidateSecret(secret, old *corev1.Secret, sender Sender) error {
	if len(sender.Clusters) == 0 {
		return nil
	}
	if old != nil && old.Labels[fleet.LabelManagedServiceAccount] != fleet.LabelTrue {
		return refuseSecret(secret, sender, "it is not of a ManagedServiceAccount")
	}
	var finalizers []string
	if old != nil {
		finalizers = old.Finalizers
	}
	switch owners := secret.OwnerReferences; {
	case !slices.Equal(secret.Finalizers, finalizers):
		return refuseSecret(secret, sender, fmt.Sprintf("metadata.finalizers: they are %q, and have to stay %q", secret.Finalizers,
			finalizers))
	case secret.Labels[fleet.LabelManagedServiceAccount] != fleet.LabelTrue:
		return refuseSecret(secret, sender, fmt.Sprintf("metadata.labels: %s is %q, and has to be %q", fleet.LabelManagedServiceAccount,
			secret.Labels[fleet.LabelManagedServiceAccount], fleet.LabelTrue))
	case len(owners) != 1 || owners[0].Kind != "ManagedServiceAccount" || owners[0].Name != secret.Name ||
		groupOf(owners[0].APIVersion) != groupAuthentication:
		return refuseSecret(secret, sender, fmt.Sprintf("metadata.ownerReferences: the owner has to be the ManagedServiceAccount %s, alone",
			secret.Name))
	case secret.Type != "" && secret.Type != corev1.SecretTypeOpaque:
		return refuseSecret(secret, sender, fmt.Sprintf("type: it is %q, and has to be %q", secret.Type, corev1.SecretTypeOpaque))
	}
	for key := range secret.Data {
		if !slices.Contains([]string{corev1.ServiceAccountTokenKey, corev1.ServiceAccountRootCAKey}, key) {
			return refuseSecret(secret, sender, fmt.Sprintf("data: it has the key %q, and may have %s and %s", key, corev1.ServiceAccountTokenKey,
				corev1.ServiceAccountRootCAKey))
		}
	}
	return limitSize(secret.Data, mostSecretBytes, fmt.Sprintf("Secret %q", secret.Name), nil)
}

func groupOf(apiVersion string) string {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return ""
	}
	return version.Group
}

func refuseSecret(secret *corev1.Secret, sender Sender, why string) error {
	return apierrors.NewForbidden(corev1.Resource("secrets"), secret.Name, fmt.Errorf(
		"user %q is the agent of a cluster and may write Secrets with tokens of ManagedServiceAccounts only: %s", sender.Name, why))
}
