// Package hubkubeconfig keeps the credential with which an agent works on the hub: how it is laid out, whether it still
// holds, and where it is stored.
package hubkubeconfig

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/fleet"
)

// Credential is a hub kubeconfig with the files that it refers to.
type Credential struct {
	Kubeconfig  []byte
	Certificate []byte
	Key         []byte
	Identity    identity.Identity
}

// New lays out the credential of RG-09: the hub as the bootstrap kubeconfig describes it, proxy included, and the client
// certificate in files beside the kubeconfig, so that a rotation need not touch the kubeconfig.
func New(bootstrap *clientcmdapi.Config, id identity.Identity, certificate, key []byte) (*Credential, error) {
	name, hub, err := hubCluster(bootstrap)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   hub.Server,
			CertificateAuthority:     hub.CertificateAuthority,
			CertificateAuthorityData: hub.CertificateAuthorityData,
			ProxyURL:                 hub.ProxyURL,
			TLSServerName:            hub.TLSServerName,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{fleet.KubeconfigUser: {ClientCertificate: fleet.KeyTLSCert, ClientKey: fleet.KeyTLSKey}},
		Contexts: map[string]*clientcmdapi.Context{fleet.KubeconfigContext: {
			Cluster: name, AuthInfo: fleet.KubeconfigUser, Namespace: fleet.KubeconfigNamespace,
		}},
		CurrentContext: fleet.KubeconfigContext,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the hub kubeconfig: %w", err)
	}
	return &Credential{Kubeconfig: kubeconfig, Certificate: certificate, Key: key, Identity: id}, nil
}

// hubCluster is the cluster of the current context, and its name.
func hubCluster(config *clientcmdapi.Config) (string, *clientcmdapi.Cluster, error) {
	current, ok := config.Contexts[config.CurrentContext]
	if !ok {
		return "", nil, fmt.Errorf("current-context %q is not among the contexts", config.CurrentContext)
	}
	hub, ok := config.Clusters[current.Cluster]
	if !ok {
		return "", nil, fmt.Errorf("context %q names cluster %q, which is not among the clusters", config.CurrentContext, current.Cluster)
	}
	return current.Cluster, hub, nil
}

// Valid is RG-03. It returns why the credential cannot be used on the bootstrap kubeconfig's hub under this identity; nil
// means that it can. Without a bootstrap kubeconfig only the credential itself is judged.
func (c *Credential) Valid(bootstrap *clientcmdapi.Config, id identity.Identity, now time.Time) error {
	config, err := clientcmd.Load(c.Kubeconfig)
	if err != nil {
		return fmt.Errorf("the hub kubeconfig cannot be read: %w", err)
	}
	if err := sameHub(bootstrap, config); err != nil {
		return err
	}
	leaf, err := c.leaf()
	if err != nil {
		return err
	}
	if _, err := tls.X509KeyPair(c.Certificate, c.Key); err != nil {
		return fmt.Errorf("the client certificate and its key do not belong together: %w", err)
	}
	if !now.Before(leaf.NotAfter) {
		return fmt.Errorf("the client certificate expired on %s", leaf.NotAfter.Format(time.RFC3339))
	}
	if leaf.Subject.CommonName != id.User() {
		return fmt.Errorf("the client certificate is of %q, this agent is %q", leaf.Subject.CommonName, id.User())
	}
	return nil
}

func sameHub(bootstrap, config *clientcmdapi.Config) error {
	name, hub, err := hubCluster(config)
	if err != nil {
		return fmt.Errorf("the hub kubeconfig is incomplete: %w", err)
	}
	if bootstrap == nil {
		return nil
	}
	wantName, want, err := hubCluster(bootstrap)
	if err != nil {
		return fmt.Errorf("the bootstrap kubeconfig is incomplete: %w", err)
	}
	switch {
	case hub.Server != want.Server:
		return fmt.Errorf("the hub moved from %s to %s", hub.Server, want.Server)
	case hub.ProxyURL != want.ProxyURL:
		return fmt.Errorf("the proxy to the hub changed from %q to %q", withoutPassword(hub.ProxyURL), withoutPassword(want.ProxyURL))
	case hub.TLSServerName != want.TLSServerName:
		return fmt.Errorf("the tls-server-name of the hub changed from %q to %q", hub.TLSServerName, want.TLSServerName)
	case hub.CertificateAuthority != want.CertificateAuthority || string(hub.CertificateAuthorityData) != string(want.CertificateAuthorityData):
		return fmt.Errorf("the certificate authority of the hub changed")
	case name != wantName:
		return fmt.Errorf("the hub is called %q now, and was %q", wantName, name)
	}
	return nil
}

// withoutPassword is a URL that may be shown.
func withoutPassword(text string) string {
	parsed, err := url.Parse(text)
	if err != nil {
		return "a proxy-url that is no URL"
	}
	return parsed.Redacted()
}

// Lifetime is the validity of the client certificate.
func (c *Credential) Lifetime() (notBefore, notAfter time.Time, err error) {
	leaf, err := c.leaf()
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	return leaf.NotBefore, leaf.NotAfter, nil
}

// Holder is the identity that the client certificate proves.
func (c *Credential) Holder() (identity.Identity, error) {
	leaf, err := c.leaf()
	if err != nil {
		return identity.Identity{}, err
	}
	cluster, agent, err := fleet.ParseClusterUser(leaf.Subject.CommonName)
	if err != nil {
		return identity.Identity{}, fmt.Errorf("the client certificate is of another: %w", err)
	}
	return identity.Identity{Cluster: cluster, Agent: agent}, nil
}

func (c *Credential) leaf() (*x509.Certificate, error) {
	chain, err := cert.ParseCertsPEM(c.Certificate)
	if err != nil {
		return nil, fmt.Errorf("the client certificate cannot be read: %w", err)
	}
	return chain[0], nil
}
