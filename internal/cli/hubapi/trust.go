package hubapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"

	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
	"github.com/capstan-io/capstan/internal/operator/installer"
)

// Invitation is what a cluster is given to join a hub: the words of the join command.
type Invitation struct {
	// Server is the URL of the hub, Token is what to join with: a bootstrap token or one of a service account.
	Server, Token string
	// CAFile has the certificates to verify the hub with; empty means those that the hub itself publishes.
	CAFile string
	// Pins are the values of --ca-cert-hash: the hashes of the public keys of the certificate authorities that the hub may have,
	// as kubeadm writes them. Empty for any.
	Pins []string
	// TrustOnFirstUse believes what the server at the URL sends about itself when nothing else vouches for it.
	TrustOnFirstUse bool
	// Known are clusters that the user trusts already: the hub may be one of them.
	Known []apiclient.KnownCluster
	// Confirm asks a person whether a certificate authority with this fingerprint is that of the hub. It is called only when nothing else
	// vouches for it; nil is no. The error is that the context ended before there was an answer.
	Confirm func(ctx context.Context, fingerprint string) (bool, error)
	// ProxyURL is the HTTP proxy to the hub, empty for none. ProxyCAFile has the certificates to verify it with.
	ProxyURL, ProxyCAFile string
}

// Trust is how a hub is recognised.
type Trust struct {
	// CA is PEM certificates to verify the hub with; empty means the system's own.
	CA []byte
	// OnFirstUse says that nothing vouches for CA but the server that sent it.
	OnFirstUse bool
	// Known says that a kubeconfig of the user vouches for CA.
	Known bool
	// Reason says in words where the trust comes from.
	Reason string
}

// configMapRootCA is what Kubernetes publishes in every namespace.
const configMapRootCA = "kube-root-ca.crt"

// errUnsigned is why a bootstrap token does not vouch for a hub.
var errUnsigned = fmt.Errorf("%w: it does not know the bootstrap token", ErrUntrusted)

// ErrUntrusted is why a hub cannot be recognised. Nothing secret was sent to it.
var ErrUntrusted = errors.New("the hub cannot be verified")

// Check finds what is wrong with an invitation without a request to any server.
func (i Invitation) Check() error {
	server, err := url.Parse(i.Server)
	if err != nil || server.Host == "" || server.Scheme != "https" {
		return fmt.Errorf("--hub-apiserver: %q is not a URL that begins with https://; without TLS, an attacker on the way could read the token and answer "+
			"in place of the hub: \"capstan get token\" on the hub prints the right one", i.Server)
	}
	if err := checkPins(i.Pins); err != nil {
		return err
	}
	if i.ProxyURL != "" {
		proxy, err := url.Parse(i.ProxyURL)
		if err != nil || proxy.Host == "" || (proxy.Scheme != "https" && proxy.Scheme != "http") {
			return fmt.Errorf("--proxy-url: %q is not a URL that begins with http:// or https://", i.ProxyURL)
		}
	}
	if i.ProxyCAFile != "" && i.ProxyURL == "" {
		return errors.New("--proxy-ca-file: useless without --proxy-url: set both or neither")
	}
	return nil
}

// Trust finds the certificates to verify the hub with. In this order: the file that was named; what the hub publishes for everybody, if
// it has one of the pins; those of a kubeconfig; what the hub publishes, if it is signed with the bootstrap token; the system's own. The
// token is not sent to a server that is not verified yet.
func (i Invitation) Trust(ctx context.Context) (Trust, error) {
	trust, err := i.trustHub(ctx)
	if err != nil || i.ProxyCAFile == "" {
		return trust, err
	}
	proxyCA, err := readCertificates("--proxy-ca-file", i.ProxyCAFile)
	if err != nil {
		return trust, err
	}
	if len(trust.CA) == 0 {
		return trust, errors.New("--proxy-ca-file: the hub publishes no certificate authority to add it to: name the hub's with --ca-file")
	}
	trust.CA = mergeCertificates(trust.CA, forwardproxy.ForProxy(proxyCA))
	return trust, nil
}

func (i Invitation) trustHub(ctx context.Context) (Trust, error) {
	if i.CAFile != "" {
		ca, err := readCertificates("--ca-file", i.CAFile)
		return Trust{CA: ca, Reason: "verified with " + i.CAFile}, err
	}
	anonymous, err := i.connect(rest.TLSClientConfig{Insecure: true}, "")
	if err != nil {
		return Trust{}, err
	}
	if len(i.Pins) > 0 {
		return i.trustPinned(ctx, anonymous)
	}
	if known, ok := i.trustKnown(); ok {
		return known, nil
	}
	published, err := anonymous.publishedCA(ctx, i.Token)
	switch {
	case err == nil && published.OnFirstUse:
		return i.trustUnvouched(ctx, published)
	case errors.Is(err, errUnsigned):
		return i.trustUnsigned(ctx, anonymous, err)
	case err == nil && len(published.CA) > 0:
		return published, nil
	case errors.Is(err, ErrUntrusted):
		return Trust{}, err
	case err != nil && !Withheld(err):
		return Trust{}, anonymous.Explain("ask the hub for its certificate authority", err)
	}
	return i.trustSystem(ctx)
}

// trustUnvouched decides about a hub whose certificate authority comes from its own server alone.
func (i Invitation) trustUnvouched(ctx context.Context, published Trust) (Trust, error) {
	if known, ok := i.trustKnownCA(published.CA); ok {
		return known, nil
	}
	if i.isPublic(ctx) {
		return Trust{Reason: "verified with the certificates of this machine"}, nil
	}
	fingerprint := Fingerprint(published.CA)
	if i.TrustOnFirstUse {
		return published, nil
	}
	if i.Confirm != nil {
		confirmed, err := i.Confirm(ctx, fingerprint)
		if err != nil {
			return Trust{}, fmt.Errorf("no answer whether %s is the hub: %w", i.Server, err)
		}
		if confirmed {
			published.OnFirstUse, published.Reason = false, "confirmed by you"
			return published, nil
		}
	}
	return Trust{}, fmt.Errorf("%w: nothing vouches for %s but the server itself, which sent the certificate authority %s\n"+
		"Name its hash, --ca-cert-hash, which \"capstan get token\" on the hub prints, or a file with it, --ca-file FILE; "+
		"or use a kubeconfig that has the hub as one of its clusters. "+
		"--trust-on-first-use joins the server that answers there, whichever that is.", ErrUntrusted, i.Server, fingerprint)
}

// isPublic reports whether the certificate of the hub is signed by an authority that this machine knows.
func (i Invitation) isPublic(ctx context.Context) bool {
	public, err := i.connect(rest.TLSClientConfig{}, "")
	if err != nil {
		return false
	}
	err = public.Raw().Get().AbsPath("/version").Do(ctx).Error()
	var answered apierrors.APIStatus
	return err == nil || errors.As(err, &answered) && answered.Status().Code != 0
}

// trustUnsigned is for hubs that do not sign with their bootstrap tokens: a kubeconfig may vouch for them.
func (i Invitation) trustUnsigned(ctx context.Context, anonymous *Hub, unsigned error) (Trust, error) {
	published, err := anonymous.publishedCA(ctx, "")
	if err != nil {
		return Trust{}, unsigned
	}
	if known, ok := i.trustKnownCA(published.CA); ok {
		return known, nil
	}
	return Trust{}, unsigned
}

// trustSystem is for hubs whose certificate everybody can verify.
func (i Invitation) trustSystem(ctx context.Context) (Trust, error) {
	public, err := i.connect(rest.TLSClientConfig{}, "")
	if err != nil {
		return Trust{}, err
	}
	var unknown x509.UnknownAuthorityError
	if err := public.Raw().Get().AbsPath("/version").Do(ctx).Error(); errors.As(err, &unknown) {
		return Trust{}, fmt.Errorf("%w: %s publishes no certificate authority, and its certificate is not signed by one this machine knows\n"+
			"Name a file with it: --ca-file FILE.", ErrUntrusted, i.Server)
	}
	return Trust{Reason: "verified with the certificates of this machine"}, nil
}

// trustPinned needs no signature: the pin came from the hub with the token.
func (i Invitation) trustPinned(ctx context.Context, anonymous *Hub) (Trust, error) {
	published, err := anonymous.publishedCA(ctx, "")
	if err != nil && !errors.Is(err, ErrUntrusted) && !Withheld(err) {
		return Trust{}, anonymous.Explain("ask the hub for its certificate authority", err)
	}
	ca, err := keepPinned(published.CA, i.Pins)
	return Trust{CA: ca, Reason: "verified with --ca-cert-hash"}, err
}

// Withheld distinguishes a hub that publishes nothing about itself from one that cannot be reached.
func Withheld(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// publishedCA reads the ConfigMaps cluster-info and kube-root-ca.crt that a hub shows to everybody.
func (h *Hub) publishedCA(ctx context.Context, token string) (Trust, error) {
	info, err := h.publicConfigMap(ctx, bootstrapapi.ConfigMapClusterInfo)
	if err == nil {
		return trustClusterInfo(info, token)
	}
	if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return Trust{}, err
	}
	if bootstraputil.IsValidBootstrapToken(token) {
		return Trust{}, unsigned(token)
	}
	root, err := h.publicConfigMap(ctx, configMapRootCA)
	if err != nil {
		return Trust{}, err
	}
	return trustOnFirstUse([]byte(root.Data["ca.crt"])), nil
}

func (h *Hub) publicConfigMap(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	configMap := &corev1.ConfigMap{}
	err := h.Client(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(metav1.NamespacePublic).Get(ctx, name, configMap)
	return configMap, err
}

// trustClusterInfo takes the CA out of the ConfigMap cluster-info. With a bootstrap token it must carry a signature that
// only a user who knows the token can make: leaving it out must not help an impostor.
func trustClusterInfo(info *corev1.ConfigMap, token string) (Trust, error) {
	content := info.Data[bootstrapapi.KubeConfigKey]
	config, err := clientcmd.Load([]byte(content))
	if err != nil || len(config.Clusters) == 0 {
		return Trust{}, fmt.Errorf("%w: its ConfigMap %s/%s holds no kubeconfig\nName a file with the hub's certificate authority: --ca-file FILE.",
			ErrUntrusted, metav1.NamespacePublic, bootstrapapi.ConfigMapClusterInfo)
	}
	ca := FirstCluster(config).CertificateAuthorityData
	if !bootstraputil.IsValidBootstrapToken(token) {
		return trustOnFirstUse(ca), nil
	}
	id, secret, _ := strings.Cut(token, ".")
	signature, signed := info.Data[bootstrapapi.JWSSignatureKeyPrefix+id]
	if !signed {
		return Trust{}, unsigned(token)
	}
	if !jws.DetachedTokenIsValid(signature, content, id, secret) {
		return Trust{}, fmt.Errorf("%w: what it publishes about itself was not signed with this bootstrap token, so it may be an impostor\n"+
			"Check --hub-apiserver and --hub-token; \"capstan get token --use-bootstrap-token\" on the hub prints both.", ErrUntrusted)
	}
	return Trust{CA: ca, Reason: "verified with the bootstrap token"}, nil
}

// FirstCluster is the cluster of a kubeconfig that should have one: of several, the first by its name.
func FirstCluster(config *clientcmdapi.Config) *clientcmdapi.Cluster {
	for _, name := range slices.Sorted(maps.Keys(config.Clusters)) {
		return config.Clusters[name]
	}
	return clientcmdapi.NewCluster()
}

func unsigned(token string) error {
	id, _, _ := strings.Cut(token, ".")
	return fmt.Errorf("%w %s, which may have expired or been deleted\n"+
		"Ask for a new one: \"capstan get token --use-bootstrap-token\" on the hub. Or, if this hub does not sign with its tokens, "+
		"name a file with its certificate authority: --ca-file FILE.", errUnsigned, id)
}

func trustOnFirstUse(ca []byte) Trust {
	if len(ca) == 0 {
		return Trust{}
	}
	return Trust{CA: ca, OnFirstUse: true, Reason: "not verified: trusting the certificate authority that the server itself sent, " +
		Fingerprint(ca)}
}

// Fingerprint names the first certificate of a PEM bundle so that two people can compare it.
func Fingerprint(ca []byte) string {
	block, _ := pem.Decode(ca)
	if block == nil {
		return "which is no PEM certificate"
	}
	sum := sha256.Sum256(block.Bytes)
	return "SHA-256 " + hex.EncodeToString(sum[:])
}

// Hub connects to the hub of the invitation with its token.
func (i Invitation) Hub(trust Trust) (*Hub, error) {
	return i.connect(rest.TLSClientConfig{CAData: trust.CA}, i.Token)
}

// HubAs connects to the hub of the invitation with the certificate of an agent that has joined.
func (i Invitation) HubAs(trust Trust, certificate, key []byte) (*Hub, error) {
	return i.connect(rest.TLSClientConfig{CAData: trust.CA, CertData: certificate, KeyData: key}, "")
}

// Verify tries what a cluster does first with the invitation: it finds the certificates to verify the hub with, and verifies it. The error
// is ErrUntrusted if that cannot succeed from anywhere.
func (i Invitation) Verify(ctx context.Context) error {
	trust, err := i.Trust(ctx)
	if err != nil {
		return err
	}
	hub, err := i.connect(rest.TLSClientConfig{CAData: trust.CA}, "")
	if err != nil {
		return err
	}
	return hub.verify(ctx)
}

// VerifyAt tries what a cluster does that joins: it verifies the server at a URL, on the way by which this client reaches the hub, with
// certificates in PEM, or those of this machine where there are none. No credential is sent. The error is ErrUntrusted if that cannot
// succeed from anywhere.
func (h *Hub) VerifyAt(ctx context.Context, server string, ca []byte) error {
	if len(ca) > 0 && !x509.NewCertPool().AppendCertsFromPEM(ca) {
		return fmt.Errorf("%w: its certificate authority is no PEM certificate", ErrUntrusted)
	}
	config := rest.AnonymousClientConfig(h.Config())
	config.Host, config.TLSClientConfig = server, rest.TLSClientConfig{CAData: ca}
	anonymous, err := New(config)
	if err != nil {
		return err
	}
	return anonymous.verify(ctx)
}

// verify tries whether the certificate of the server can be verified. The error is ErrUntrusted if it cannot, wherever from.
func (h *Hub) verify(ctx context.Context) error {
	err := h.Live(ctx)
	var proxyErr *forwardproxy.Error
	var unknownAuthority x509.UnknownAuthorityError
	var wrongHost x509.HostnameError
	var answered apierrors.APIStatus
	switch {
	case errors.As(err, &proxyErr): // it may be the certificate of the proxy
		return err
	case errors.As(err, &wrongHost):
		return fmt.Errorf("%w: its certificate is not for %s, but for %s", ErrUntrusted, wrongHost.Host, namesIn(wrongHost.Certificate))
	case errors.As(err, &unknownAuthority):
		return fmt.Errorf("%w: %w", ErrUntrusted, unwrapURL(err))
	case errors.As(err, &answered):
		return nil
	}
	return err
}

// namesIn are the host names and the addresses that a certificate is for.
func namesIn(certificate *x509.Certificate) string {
	names := slices.Clone(certificate.DNSNames)
	for _, address := range certificate.IPAddresses {
		names = append(names, address.String())
	}
	return cmp.Or(strings.Join(names, ", "), "no host name or address")
}

func (i Invitation) connect(tls rest.TLSClientConfig, token string) (*Hub, error) {
	config := &rest.Config{Host: i.Server, TLSClientConfig: tls, BearerToken: token}
	if i.ProxyURL != "" {
		if err := i.useProxy(config); err != nil {
			return nil, err
		}
	}
	hub, err := New(config)
	if err != nil {
		return nil, err
	}
	hub.Source = Source{Invitation: true}
	return hub, nil
}

// useProxy verifies an HTTPS proxy even where the hub is not verified yet: a password may be sent to it.
func (i Invitation) useProxy(config *rest.Config) error {
	proxy, err := url.Parse(i.ProxyURL)
	if err != nil {
		return fmt.Errorf("--proxy-url: %w", err)
	}
	trust := config.TLSClientConfig
	if trust.Insecure {
		trust = rest.TLSClientConfig{CAFile: i.ProxyCAFile}
	}
	forwardproxy.Proxy{URL: proxy, Trust: trust}.Carry(config)
	return nil
}

// Kubeconfig is what an agent joins with.
func (i Invitation) Kubeconfig(trust Trust) *clientcmdapi.Config {
	return installer.BootstrapKubeconfig(i.Server, trust.CA, i.Token, i.ProxyURL)
}

func readCertificates(flag, file string) ([]byte, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s: %s holds no PEM certificate", flag, file)
	}
	return content, nil
}

// mergeCertificates joins PEM bundles, each certificate once.
func mergeCertificates(bundles ...[]byte) []byte {
	var merged []byte
	seen := map[string]bool{}
	for _, bundle := range bundles {
		for block, others := pem.Decode(bundle); block != nil; block, others = pem.Decode(others) {
			if !seen[string(block.Bytes)] {
				seen[string(block.Bytes)] = true
				merged = append(merged, pem.EncodeToMemory(block)...)
			}
		}
	}
	return merged
}
