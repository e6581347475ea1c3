package framework

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// AsAdmin is the client configuration of the administrator of a server.
func AsAdmin(t *testing.T, server *env.Server) *rest.Config {
	t.Helper()
	config, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// Certificate is the certificate of an agent, in PEM.
func Certificate(t *testing.T, agent *env.Agent) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(agent.HubDir, fleet.KeyTLSCert))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// AgentSubject is who an agent of a cluster is on the hub.
func AgentSubject(cluster, agent string) pkix.Name {
	return pkix.Name{CommonName: fleet.ClusterUser(cluster, agent), Organization: fleet.ClusterGroups(cluster)}
}

// AnonymousConfig is a configuration for a hub without any identity.
func AnonymousConfig(t *testing.T, server *env.Server) *rest.Config {
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
	config := AnonymousConfig(t, server)
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

// AsItself leaves the administrator what it is.
func AsItself(config *rest.Config) *rest.Config { return config }

// AsUser impersonates a user.
func AsUser(name string) func(*rest.Config) *rest.Config {
	return func(config *rest.Config) *rest.Config {
		config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{fleet.GroupAuthenticated}}
		return config
	}
}
