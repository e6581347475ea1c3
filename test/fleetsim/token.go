package fleetsim

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const tokenID = "fleet1"

// HubFlags make a hub approve and accept the fleet that comes with a token of NewToken, all at once.
func HubFlags() []string {
	return []string{"--feature-gates", "ManagedClusterAutoApproval=true", "--auto-approved-csr-users", "system:bootstrap:" + tokenID,
		"--join-limit", "100000"}
}

// NewToken makes a bootstrap token on the hub.
func NewToken(ctx context.Context, hub client.Client) (string, error) {
	secret := rand.String(16)
	err := hub.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + tokenID},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": tokenID, "token-secret": secret, "usage-bootstrap-authentication": "true",
			"auth-extra-groups": fleet.GroupBootstrap,
		},
	})
	if err != nil {
		return "", fmt.Errorf("make a bootstrap token: %w", err)
	}
	return tokenID + "." + secret, nil
}
