package framework

import (
	"context"
	"errors"
	"fmt"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// AwaitRefused waits until the hub does not even know the agent.
func AwaitRefused(t *testing.T, agent client.Client, cluster string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		for right, err := range rights(ctx, agent, cluster) {
			if !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("may it %s: %w", right, err)
			}
		}
		return nil
	})
}

// CredentialOf is what an agent's credential is now, whatever becomes of its files.
func CredentialOf(t *testing.T, agent *env.Agent) *rest.Config {
	t.Helper()
	config := agent.HubConfig(t)
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	config.CertFile, config.KeyFile = "", ""
	return config
}

// AwaitAnotherRequest waits until an agent has asked to join once more.
func AwaitAnotherRequest(t *testing.T, admin client.Client, cluster string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	pending := &certificatesv1.CertificateSigningRequest{}
	env.Eventually(t, func(ctx context.Context) error {
		requests := &certificatesv1.CertificateSigningRequestList{}
		if err := admin.List(ctx, requests, client.MatchingLabels(OfCluster(cluster))); err != nil {
			return err
		}
		for i := range requests.Items {
			if csr := &requests.Items[i]; len(csr.Status.Conditions) == 0 && fleet.IsJoining(csr.Spec.Username, csr.Spec.Groups) {
				*pending = *csr
				return nil
			}
		}
		return errors.New("the agent does not ask to join again")
	})
	return pending
}
