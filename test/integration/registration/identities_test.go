package registration

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

func withToken(t *testing.T, server *env.Server, token string) *rest.Config {
	t.Helper()
	config := framework.AnonymousConfig(t, server)
	config.BearerToken = token
	return config
}

// bootstrapAccountToken is a token of the service account that agents join with.
func bootstrapAccountToken(t *testing.T, server *env.Server) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceOperators, Name: fleet.ServiceAccountBootstrap}}
	token := &authenticationv1.TokenRequest{}
	if err := server.Client(t).SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}
