package hubkubeconfig

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/agent/hubaccess"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
)

// originExtension is the name of the extension of the hub's entry in a hub kubeconfig that holds its origin.
const originExtension = "capstan.io/bootstrap"

// origin is what the bootstrap kubeconfig said of the hub when a credential was made for it. The hub kubeconfig itself may
// have changed since: it follows the hub's CA.
type origin struct {
	Name          string `json:"name"`
	Server        string `json:"server"`
	ProxyURL      string `json:"proxyURL,omitempty"`
	TLSServerName string `json:"tlsServerName,omitempty"`
	// CA is a digest of the CA bundle.
	CA string `json:"ca,omitempty"`
	// Settings are those of a connection by gRPC.
	Settings string `json:"settings,omitempty"`
	// HubID distinguishes the hub from others that had, or have, the same address. It stays when the name, the address or the CA of the hub
	// changes.
	HubID string `json:"hubID,omitempty"`
	// MovedFrom is the address that the hub had when the agent first registered there, if it has another now.
	MovedFrom string `json:"movedFrom,omitempty"`
	// Cluster and Agent are whose credential it is, where no certificate says so.
	Cluster string `json:"cluster,omitempty"`
	Agent   string `json:"agent,omitempty"`
}

// newHubID is the identity of the hub that has issued the first certificate to an agent: that of the CA that signed it, by its key. Where
// the CA does not name its key, as every one of the same name might have signed it, each registration is taken to be with another hub.
func newHubID(certificate []byte) (string, error) {
	leaf, err := leafOf(certificate)
	if err != nil {
		return "", err
	}
	if len(leaf.AuthorityKeyId) == 0 {
		return string(uuid.NewUUID()), nil
	}
	return signerID(leaf), nil
}

func signerID(leaf *x509.Certificate) string {
	digest := sha256.Sum256(slices.Concat(leaf.RawIssuer, leaf.AuthorityKeyId))
	return hex.EncodeToString(digest[:])
}

// HubID distinguishes the hub that the credential is of from others that had, or have, the same address. For a credential that was made by
// another agent than this, which has no record of it, it is who signed the certificate.
func (c *Credential) HubID() (string, error) {
	recorded, err := c.origin()
	if err != nil || recorded.HubID != "" {
		return recorded.HubID, err
	}
	leaf, err := c.leaf()
	if err != nil {
		return "", err
	}
	return signerID(leaf), nil
}

// MovedFrom is the address that the hub had when the agent first registered there; empty if it has the same now.
func (c *Credential) MovedFrom() (string, error) {
	recorded, err := c.origin()
	return recorded.MovedFrom, err
}

// succeeding is the credential in place of an earlier one. A hub that has moved stays the one that it was for an agent that registers there
// again.
func (c *Credential) succeeding(earlier *Credential) (*Credential, error) {
	before, _ := earlier.origin() // one that cannot be read says nothing
	if before.MovedFrom == "" {
		return c, nil
	}
	config, name, hub, err := c.read()
	if err != nil {
		return nil, err
	}
	now := recordedOrigin(name, hub)
	if before.Server != now.Server {
		return c, nil
	}
	now.MovedFrom = before.MovedFrom
	if err := now.record(hub); err != nil {
		return nil, err
	}
	return c.with(config)
}

func (c *Credential) origin() (origin, error) {
	_, name, hub, err := c.read()
	if err != nil {
		return origin{}, err
	}
	return recordedOrigin(name, hub), nil
}

func originOf(name string, hub *clientcmdapi.Cluster) origin {
	o := origin{Name: name, Server: hub.Server, ProxyURL: hub.ProxyURL, TLSServerName: hub.TLSServerName}
	if ca := hub.CertificateAuthority + string(hub.CertificateAuthorityData); ca != "" {
		digest := sha256.Sum256([]byte(ca))
		o.CA = hex.EncodeToString(digest[:])
	}
	if settings, ok := hub.Extensions[hubaccess.GRPCExtension].(*runtime.Unknown); ok {
		o.Settings = string(settings.Raw)
	}
	return o
}

// record replaces the extensions of the hub's entry: it has the origin, and what is said of a connection by gRPC.
func (o origin) record(hub *clientcmdapi.Cluster) error {
	encoded, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode what the hub kubeconfig is made from: %w", err)
	}
	extensions := map[string]runtime.Object{originExtension: &runtime.Unknown{Raw: encoded, ContentType: runtime.ContentTypeJSON}}
	if settings, ok := hub.Extensions[hubaccess.GRPCExtension]; ok {
		extensions[hubaccess.GRPCExtension] = settings
	}
	hub.Extensions = extensions
	return nil
}

// recordedOrigin is the origin of a hub kubeconfig. One that was made by another agent than this has no record: there, its
// own content has to do.
func recordedOrigin(name string, hub *clientcmdapi.Cluster) origin {
	recorded, ok := hub.Extensions[originExtension].(*runtime.Unknown)
	if !ok {
		return originOf(name, hub)
	}
	var o origin
	if err := json.Unmarshal(recorded.Raw, &o); err != nil {
		return originOf(name, hub)
	}
	return o
}

// MadeFor checks that the credential was made for the hub of a bootstrap kubeconfig. The error says how that differs from the hub for
// which the credential was made.
func (c *Credential) MadeFor(bootstrap *clientcmdapi.Config) error {
	made, err := c.origin()
	if err != nil {
		return err
	}
	wantName, want, err := HubCluster(bootstrap)
	if err != nil {
		return fmt.Errorf("the bootstrap kubeconfig is incomplete: %w", err)
	}
	return made.differs(originOf(wantName, want))
}

func (o origin) differs(now origin) error {
	switch {
	case o.Server != now.Server:
		return fmt.Errorf("the hub moved from %s to %s", o.Server, now.Server)
	case o.ProxyURL != now.ProxyURL:
		return fmt.Errorf("the proxy to the hub changed from %q to %q", withoutPassword(o.ProxyURL), withoutPassword(now.ProxyURL))
	case o.TLSServerName != now.TLSServerName:
		return fmt.Errorf("the tls-server-name of the hub changed from %q to %q", o.TLSServerName, now.TLSServerName)
	case o.CA != now.CA:
		return fmt.Errorf("the certificate authority of the hub changed")
	case o.Settings != now.Settings:
		return fmt.Errorf("the settings of the connection to the hub changed from %q to %q", o.Settings, now.Settings)
	case o.Name != now.Name:
		return fmt.Errorf("the hub is called %q now, and was %q", now.Name, o.Name)
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

// TrustBundle is the CA bundle with which the hub is verified, in PEM; nil if that is left to the machine.
func (c *Credential) TrustBundle() ([]byte, error) {
	_, _, hub, err := c.read()
	if err != nil {
		return nil, err
	}
	return hub.CertificateAuthorityData, nil
}

// WithTrustBundle is the same credential with another CA bundle.
func (c *Credential) WithTrustBundle(bundle []byte) (*Credential, error) {
	config, name, hub, err := c.read()
	if err != nil {
		return nil, err
	}
	if err := recordedOrigin(name, hub).record(hub); err != nil {
		return nil, err
	}
	hub.CertificateAuthority, hub.CertificateAuthorityData = "", bundle
	return c.with(config)
}

// For is the same client certificate, or command, in a kubeconfig for what a bootstrap kubeconfig says of the same hub now.
func (c *Credential) For(bootstrap *clientcmdapi.Config) (*Credential, error) {
	known, err := c.origin()
	if err != nil {
		return nil, err
	}
	if known.HubID, err = c.HubID(); err != nil {
		return nil, err
	}
	known.MovedFrom = cmp.Or(known.MovedFrom, known.Server)
	user := WithCertificate
	if command := c.Command(); command != nil {
		user = clientcmdapi.AuthInfo{Exec: command}
	}
	return withKubeconfig(bootstrap, *c, known, user)
}

func (c *Credential) recordedHolder() (identity.Identity, error) {
	recorded, err := c.origin()
	if err != nil {
		return identity.Identity{}, err
	}
	if recorded.Cluster == "" || recorded.Agent == "" {
		return identity.Identity{}, fmt.Errorf("the hub kubeconfig does not say whose it is")
	}
	return identity.Identity{Cluster: recorded.Cluster, Agent: recorded.Agent}, nil
}
