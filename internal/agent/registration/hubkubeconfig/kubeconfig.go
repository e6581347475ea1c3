// Package hubkubeconfig keeps the credential with which an agent works on the hub: how it is laid out, whether it is still
// valid, and where it is stored.
package hubkubeconfig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/agent/hubaccess"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
)

// Credential is a hub kubeconfig with the files that it refers to: a client certificate and its key, or none, if the kubeconfig names a
// command that makes tokens.
type Credential struct {
	Kubeconfig  []byte
	Certificate []byte
	Key         []byte
	Identity    identity.Identity
}

// New lays out the credential of an agent that has registered: the hub as the bootstrap kubeconfig describes it, proxy included, and the
// client certificate in files next to the kubeconfig, so that a rotation need not touch the kubeconfig.
func New(bootstrap *clientcmdapi.Config, id identity.Identity, certificate, key []byte) (*Credential, error) {
	hubID, err := newHubID(certificate)
	if err != nil {
		return nil, err
	}
	return withKubeconfig(bootstrap, Credential{Certificate: certificate, Key: key, Identity: id}, origin{HubID: hubID}, WithCertificate)
}

// withKubeconfig completes a credential with its kubeconfig. What is known of the hub stays, whatever the bootstrap kubeconfig says.
func withKubeconfig(bootstrap *clientcmdapi.Config, c Credential, known origin, user clientcmdapi.AuthInfo) (*Credential, error) {
	name, hub, err := HubCluster(bootstrap)
	if err != nil {
		return nil, err
	}
	from := originOf(name, hub)
	from.HubID = known.HubID
	if known.MovedFrom != hub.Server {
		from.MovedFrom = known.MovedFrom
	}
	if user.Exec != nil {
		from.Cluster, from.Agent = c.Identity.Cluster, c.Identity.Agent
	}
	made := &clientcmdapi.Cluster{
		Server:                   hub.Server,
		CertificateAuthority:     hub.CertificateAuthority,
		CertificateAuthorityData: hub.CertificateAuthorityData,
		ProxyURL:                 hub.ProxyURL,
		TLSServerName:            hub.TLSServerName,
		Extensions:               hub.Extensions,
	}
	if err := from.record(made); err != nil {
		return nil, err
	}
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{name: made},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{fleet.KubeconfigUser: user.DeepCopy()},
		Contexts: map[string]*clientcmdapi.Context{fleet.KubeconfigContext: {
			Cluster: name, AuthInfo: fleet.KubeconfigUser, Namespace: fleet.KubeconfigNamespace,
		}},
		CurrentContext: fleet.KubeconfigContext,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the hub kubeconfig: %w", err)
	}
	c.Kubeconfig = kubeconfig
	return &c, nil
}

// HubCluster is the cluster of the current context, and its name.
func HubCluster(config *clientcmdapi.Config) (string, *clientcmdapi.Cluster, error) {
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

// read returns the kubeconfig of the credential, with the name and the content of its cluster, which is the hub.
func (c *Credential) read() (config *clientcmdapi.Config, name string, hub *clientcmdapi.Cluster, err error) {
	if config, err = clientcmd.Load(c.Kubeconfig); err != nil {
		return nil, "", nil, fmt.Errorf("the hub kubeconfig cannot be read: %w", err)
	}
	if name, hub, err = HubCluster(config); err != nil {
		return nil, "", nil, fmt.Errorf("the hub kubeconfig is incomplete: %w", err)
	}
	return config, name, hub, nil
}

// with is the same credential with another kubeconfig.
func (c *Credential) with(config *clientcmdapi.Config) (*Credential, error) {
	next := *c
	var err error
	if next.Kubeconfig, err = clientcmd.Write(*config); err != nil {
		return nil, fmt.Errorf("encode the hub kubeconfig: %w", err)
	}
	return &next, nil
}

// Valid checks the credential by itself, without a bootstrap kubeconfig to compare it with. The error says why it cannot be used
// under this identity.
func (c *Credential) Valid(id identity.Identity, now time.Time) error {
	if _, _, _, err := c.read(); err != nil {
		return err
	}
	if c.Command() != nil {
		holder, err := c.Holder()
		if err == nil && holder != id {
			err = fmt.Errorf("the credential is of %q, this agent is %q", holder.User(), id.User())
		}
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

// Lifetime is the validity of the client certificate.
func (c *Credential) Lifetime() (notBefore, notAfter time.Time, err error) {
	leaf, err := c.leaf()
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	return leaf.NotBefore, leaf.NotAfter, nil
}

// Holder is the identity that the client certificate proves, or for which the kubeconfig with a command was made.
func (c *Credential) Holder() (identity.Identity, error) {
	if c.Command() != nil {
		return c.recordedHolder()
	}
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

// ClientConfig is how clients reach the hub with the credential as it is here, whatever the files of a store hold. They work until the
// context ends.
func (c *Credential) ClientConfig(ctx context.Context, access *hubaccess.Access) (*rest.Config, error) {
	config, err := clientcmd.Load(c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the hub kubeconfig cannot be read: %w", err)
	}
	holder, err := c.Holder()
	if err != nil {
		return nil, err
	}
	for _, user := range config.AuthInfos {
		if user.Exec != nil {
			continue
		}
		user.ClientCertificate, user.ClientKey = "", ""
		user.ClientCertificateData, user.ClientKeyData = c.Certificate, c.Key
	}
	client, err := access.Connect(ctx, config, holder.Cluster)
	if err != nil {
		return nil, fmt.Errorf("the hub kubeconfig cannot be used: %w", err)
	}
	if access.Brokered {
		return client, nil
	}
	if err := forwardproxy.CheckTLS(client); err != nil {
		return nil, fmt.Errorf("the hub kubeconfig cannot be used: %w", err)
	}
	return client, nil
}

func (c *Credential) leaf() (*x509.Certificate, error) { return leafOf(c.Certificate) }

func leafOf(certificate []byte) (*x509.Certificate, error) {
	chain, err := cert.ParseCertsPEM(certificate)
	if err != nil {
		return nil, fmt.Errorf("the client certificate cannot be read: %w", err)
	}
	return chain[0], nil
}
