package framework

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

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

// AgentSubject is who an agent of a cluster is on the hub.
func AgentSubject(cluster, agent string) pkix.Name {
	return pkix.Name{CommonName: fleet.ClusterUser(cluster, agent), Organization: fleet.ClusterGroups(cluster)}
}

// OfCluster is the label of what belongs to a cluster.
func OfCluster(cluster string) map[string]string {
	return map[string]string{fleet.LabelClusterName: cluster}
}

// Connect is a configuration for a hub without any identity.
func Connect(t *testing.T, server *env.Server) *rest.Config {
	t.Helper()
	config, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	anonymous := rest.AnonymousClientConfig(config)
	anonymous.QPS = -1
	return anonymous
}

// WithCertificate is a configuration under a certificate that an administrator of the hub approved.
func WithCertificate(t *testing.T, server *env.Server, subject pkix.Name, labels map[string]string) *rest.Config {
	t.Helper()
	admin := server.Client(t)
	csr, key := NewRequest(t, subject, labels)
	Create(t, admin, csr)
	if err := env.Approve(t.Context(), admin, csr); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(csr), csr); err != nil {
			return err
		}
		if len(csr.Status.Certificate) == 0 {
			return errors.New("no certificate yet")
		}
		return nil
	})
	config := Connect(t, server)
	config.CertData, config.KeyData = csr.Status.Certificate, key
	return config
}

// AsAgent is a client under the certificate of a cluster's agent.
func AsAgent(t *testing.T, server *env.Server, cluster string) client.WithWatch {
	t.Helper()
	return env.ClientFor(t, WithCertificate(t, server, AgentSubject(cluster, "agent1"), OfCluster(cluster)))
}

// WhoIs asks the hub as whom it sees a credential.
func WhoIs(t *testing.T, config *rest.Config) authenticationv1.UserInfo {
	t.Helper()
	review := &authenticationv1.SelfSubjectReview{}
	Create(t, env.ClientFor(t, config), review)
	return review.Status.UserInfo
}
