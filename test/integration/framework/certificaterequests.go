package framework

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// AwaitRequests waits until a cluster has so many certificate requests on the shared hub.
func AwaitRequests(t *testing.T, cluster string, n int) {
	t.Helper()
	env.Eventually(t, func(context.Context) error {
		if names := Requests(t, cluster); len(names) != n {
			return fmt.Errorf("requests %v, want %d", names, n)
		}
		return nil
	})
}

// Requests are the names of the certificate requests of a cluster on the shared hub.
func Requests(t *testing.T, cluster string) (names []string) {
	t.Helper()
	return RequestsOn(t, Hub.Client(t), cluster)
}

// RequestsOn are the names of the certificate requests of a cluster on a hub.
func RequestsOn(t *testing.T, c client.Client, cluster string) (names []string) {
	t.Helper()
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := c.List(t.Context(), list, client.MatchingLabels{fleet.LabelClusterName: cluster}); err != nil {
		t.Fatal(err)
	}
	for _, csr := range list.Items {
		names = append(names, csr.Name)
	}
	return names
}

// NewRequest makes a certificate request for an identity, and its key.
func NewRequest(t *testing.T, subject pkix.Name, labels map[string]string, dnsNames ...string) (*certificatesv1.CertificateSigningRequest,
	[]byte) {
	t.Helper()
	private, key, err := hubkubeconfig.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := cert.MakeCSR(private, &subject, dnsNames, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: fleet.SignerKubeAPIServerClient,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment,
				certificatesv1.UsageClientAuth},
		},
	}, key
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
