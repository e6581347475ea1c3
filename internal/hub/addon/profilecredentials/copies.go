package profilecredentials

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// nameOf is that of the copies of the token of an account, whose namespace is the name of its cluster.
func nameOf(account client.ObjectKey) string {
	return fleet.TokenCopyName(account.Namespace, account.Name)
}

// checkName says why there can be no copies of the token of an account.
func checkName(account client.ObjectKey) error {
	name := nameOf(account)
	if len(name) > validation.LabelValueMaxLength {
		return fmt.Errorf("%s, the name of its copies, is longer than %d characters; give the account a shorter name", name,
			validation.LabelValueMaxLength)
	}
	return nil
}

// copyOf is the copy of a token next to a profile.
func copyOf(token *corev1.Secret, account client.ObjectKey, profile *multiclusterv1alpha1.ClusterProfile) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: profile.Namespace, Name: nameOf(account), Labels: map[string]string{fleet.LabelSyncedFrom: nameOf(account)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: multiclusterv1alpha1.GroupVersion.String(), Kind: fleet.KindClusterProfile,
				Name: profile.Name, UID: profile.UID}},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			corev1.ServiceAccountTokenKey:  token.Data[corev1.ServiceAccountTokenKey],
			corev1.ServiceAccountRootCAKey: token.Data[corev1.ServiceAccountRootCAKey],
		},
	}
}

// accountOf is the account of a copy.
func accountOf(secret *corev1.Secret) (account client.ObjectKey, isCopy bool) {
	cluster := fleet.TokenCopyCluster(secret)
	return client.ObjectKey{Namespace: cluster, Name: strings.TrimPrefix(secret.Name, fleet.TokenCopyName(cluster, ""))}, cluster != ""
}
