package hubapi_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/cluster-bootstrap/token/jws"

	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy/proxytest"
)

const (
	bootstrapToken = "abc123.0123456789abcdef"
	accountToken   = "header.payload.signature"
	clusterInfo    = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
)

// otherPin is that of no certificate.
const otherPin = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func hubPin(hub *fakehub.Hub) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(hub.Certificate().RawSubjectPublicKeyInfo))
}

// publish makes the hub publish a CA, signed with the secrets of tokens by their IDs.
func publish(t *testing.T, hub *fakehub.Hub, ca []byte, secrets map[string]string) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters[""] = &clientcmdapi.Cluster{Server: hub.URL, CertificateAuthorityData: ca}
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	info := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-info", Namespace: "kube-public"},
		Data:       map[string]string{"kubeconfig": string(content)},
	}
	for id, secret := range secrets {
		signature, err := jws.ComputeDetachedSignature(string(content), id, secret)
		if err != nil {
			t.Fatal(err)
		}
		info.Data["jws-kubeconfig-"+id] = signature
	}
	hub.Put(t, clusterInfo, info)
}

// CA-17 SD-10: how a cluster that joins recognises the hub.
func TestTrust(t *testing.T) {
	t.Parallel()
	good, other := map[string]string{"abc123": "0123456789abcdef"}, map[string]string{"abc123": "ffffffffffffffff"}
	tests := map[string]struct {
		token      string
		signatures map[string]string
		silent     bool // the hub publishes nothing
		believing  bool
		pinned     bool
		hashes     []string
		reason     string
		onFirstUse bool
		fails      string
	}{
		"signed with the bootstrap token":      {token: bootstrapToken, signatures: good, reason: "verified with the bootstrap token"},
		"signed by a user who lacks the token": {token: bootstrapToken, signatures: other, fails: "impostor"},
		"not signed":                           {token: bootstrapToken, fails: "does not know the bootstrap token abc123"},
		"signed with another token": {token: bootstrapToken, signatures: map[string]string{"zzz999": "0123456789abcdef"},
			fails: "does not know"},
		"nothing published for a bootstrap token": {token: bootstrapToken, silent: true, fails: "does not know"},
		"a service account token": {token: accountToken, signatures: good, believing: true, onFirstUse: true,
			reason: "not verified"},
		// "trust on first use only with an explicit flag"
		"a service account token alone":              {token: accountToken, signatures: good, fails: "--trust-on-first-use"},
		"believed, and not signed":                   {token: bootstrapToken, believing: true, fails: "does not know the bootstrap token abc123"},
		"believed, and another hash":                 {token: accountToken, believing: true, hashes: []string{otherPin}, fails: "impostor"},
		"nothing published for an account's token":   {token: accountToken, silent: true, fails: "--ca-file"},
		"the hash of its CA, for an account's token": {token: accountToken, hashes: []string{"THIS"}, reason: "verified with --ca-cert-hash"},
		"the hash of its CA, not signed":             {token: bootstrapToken, hashes: []string{"THIS"}, reason: "verified with --ca-cert-hash"},
		"one of several hashes": {token: accountToken, hashes: []string{otherPin, "THIS"},
			reason: "verified with --ca-cert-hash"},
		"the hash of another CA":        {token: accountToken, hashes: []string{otherPin}, fails: "impostor"},
		"another CA, though signed":     {token: bootstrapToken, signatures: good, hashes: []string{otherPin}, fails: "impostor"},
		"a hash and nothing published":  {token: accountToken, hashes: []string{"THIS"}, silent: true, fails: "--ca-file"},
		"a file is believed before all": {token: bootstrapToken, signatures: other, pinned: true, reason: "verified with"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := fakehub.New(t)
			if !test.silent {
				publish(t, hub, hub.CA(), test.signatures)
			}
			invitation := hubapi.Invitation{Server: hub.URL, Token: test.token, Pins: test.hashes, TrustOnFirstUse: test.believing}
			for i, hash := range invitation.Pins {
				invitation.Pins[i] = strings.ReplaceAll(hash, "THIS", hubPin(hub))
			}
			if test.pinned {
				invitation.CAFile = writeFile(t, hub.CA())
			}
			trust, err := invitation.Trust(t.Context())
			for _, request := range hub.Requests("GET") {
				if request.Authorization != "" {
					t.Errorf("a credential was sent to a hub that was not verified: %s", request.Path)
				}
			}
			if test.fails != "" {
				if !errors.Is(err, hubapi.ErrUntrusted) || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("error %v, want ErrUntrusted with %q", err, test.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if trust.OnFirstUse != test.onFirstUse || !strings.HasPrefix(trust.Reason, test.reason) || !slices.Equal(trust.CA, hub.CA()) {
				t.Errorf("trust: on first use %t, reason %q, want %t, %q", trust.OnFirstUse, trust.Reason, test.onFirstUse, test.reason)
			}
		})
	}
}

// CA-17: who is asked whether a hub is the right one decides; an interrupt or the end of the time is no answer.
func TestTrustConfirmed(t *testing.T) {
	t.Parallel()
	hub := fakehub.New(t)
	publish(t, hub, hub.CA(), nil)
	for name, test := range map[string]struct {
		confirmed    bool
		err, wantErr error
	}{
		"yes":         {confirmed: true},
		"no":          {wantErr: hubapi.ErrUntrusted},
		"interrupted": {err: context.Canceled, wantErr: context.Canceled},
		"too late":    {err: context.DeadlineExceeded, wantErr: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			invitation := hubapi.Invitation{Server: hub.URL, Token: accountToken}
			invitation.Confirm = func(ctx context.Context, fingerprint string) (bool, error) {
				if ctx.Err() != nil || fingerprint != hubapi.Fingerprint(hub.CA()) {
					t.Errorf("asked about %q", fingerprint)
				}
				return test.confirmed, test.err
			}
			trust, err := invitation.Trust(t.Context())
			if !errors.Is(err, test.wantErr) || err == nil && trust.Reason != "confirmed by you" {
				t.Errorf("trust %q, error %v, want %v", trust.Reason, err, test.wantErr)
			}
		})
	}
}

func writeFile(t *testing.T, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// An impostor who sends the pinned certificate, which is no secret, next to one of its own gets only the former trusted.
func TestTrustPinnedAlone(t *testing.T) {
	t.Parallel()
	hub := fakehub.New(t)
	stranger, _, err := certutil.GenerateSelfSignedCertKey("stranger", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, hub, append(stranger, hub.CA()...), nil)
	trust, err := hubapi.Invitation{Server: hub.URL, Token: accountToken, Pins: []string{hubPin(hub)}}.Trust(t.Context())
	if err != nil || !slices.Equal(trust.CA, hub.CA()) {
		t.Errorf("trusted %s, error %v", trust.CA, err)
	}
}

// CA-16: the certificates of the proxy are added to those of the hub, each once, and for the proxy alone.
func TestTrustProxy(t *testing.T) {
	t.Parallel()
	hub := fakehub.New(t)
	proxyCA := writeFile(t, hub.CA())
	publish(t, hub, hub.CA(), nil)
	invitation := hubapi.Invitation{Server: hub.URL, Token: accountToken, CAFile: proxyCA, ProxyURL: "http://proxy:3128", ProxyCAFile: proxyCA}
	trust, err := invitation.Trust(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(trust.CA), "BEGIN CERTIFICATE"); got != 1 {
		t.Errorf("%d certificates, want 1", got)
	}
	other, _, err := certutil.GenerateSelfSignedCertKey("proxy", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	invitation.ProxyCAFile = writeFile(t, other)
	if trust, err = invitation.Trust(t.Context()); err != nil || !bytes.Equal(trust.CA, append(hub.CA(), forwardproxy.ForProxy(other)...)) {
		t.Errorf("error %v, these are trusted:\n%s", err, trust.CA)
	}
	config := invitation.Kubeconfig(trust)
	if got := config.Clusters["hub"].ProxyURL; got != "http://proxy:3128" {
		t.Errorf("proxy %q in the bootstrap kubeconfig", got)
	}
}

// The proxy is for finding the hub, too.
func TestTrustThroughProxy(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(nil)
	proxy.Close()
	invitation := hubapi.Invitation{Server: "https://hub.invalid", Token: accountToken, ProxyURL: proxy.URL, TrustOnFirstUse: true}
	_, err := invitation.Trust(t.Context())
	if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(proxy.URL, "http://")) {
		t.Errorf("error %v, want one about the proxy %s", err, proxy.URL)
	}
}

// CA-16 RG-10: an HTTPS proxy is verified before it learns anything, even while the hub is not verified yet, and its
// certificate authority is among those that the agent gets.
func TestTrustThroughSecureProxy(t *testing.T) {
	t.Parallel()
	hub := fakehub.New(t)
	publish(t, hub, hub.CA(), nil)
	proxy := proxytest.Start(t, true, url.UserPassword("me", "s3cr3t"),
		map[string]string{"hub.invalid:443": strings.TrimPrefix(hub.URL, "https://")})
	invitation := hubapi.Invitation{Server: "https://hub.invalid", Token: accountToken,
		ProxyURL: proxy.URLFor(url.UserPassword("me", "s3cr3t")), TrustOnFirstUse: true}
	_, err := invitation.Trust(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--proxy-ca-file") || strings.Contains(err.Error(), "s3cr3t") || proxy.Connections() > 0 {
		t.Errorf("a proxy that nothing vouches for: %d connections, error %v", proxy.Connections(), err)
	}
	invitation.ProxyCAFile = writeFile(t, proxy.CA())
	trust, err := invitation.Trust(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(trust.CA), string(proxy.CA())) || !strings.HasPrefix(string(trust.CA), string(hub.CA())) ||
		proxy.Connections() == 0 {
		t.Errorf("after %d connections through the proxy these are trusted:\n%s", proxy.Connections(), trust.CA)
	}
}

func TestCheckInvitation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		invitation hubapi.Invitation
		fails      string
	}{
		"good":      {invitation: hubapi.Invitation{Server: "https://hub:6443"}},
		"no scheme": {invitation: hubapi.Invitation{Server: "hub:6443"}, fails: "--hub-apiserver"},
		"no TLS": {invitation: hubapi.Invitation{Server: "http://hub:6443", Token: "t"},
			fails: "--hub-apiserver: \"http://hub:6443\" is not a URL that begins with https://"},
		"no TLS, with hash": {invitation: hubapi.Invitation{Server: "http://hub:6443", Token: "t", Pins: []string{otherPin}},
			fails: "without TLS"},
		"hash": {invitation: hubapi.Invitation{Server: "https://hub", Pins: []string{otherPin}}},
		"hash too short": {invitation: hubapi.Invitation{Server: "https://hub", Pins: []string{"sha256:abc"}},
			fails: "--ca-cert-hash: \"sha256:abc\""},
		"proxy no scheme":   {invitation: hubapi.Invitation{Server: "https://hub", ProxyURL: "proxy:3128"}, fails: "--proxy-url"},
		"proxy CA no proxy": {invitation: hubapi.Invitation{Server: "https://hub", ProxyCAFile: "f"}, fails: "--proxy-ca-file"},
	} {
		err := test.invitation.Check()
		if (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s: error %v, want %q", name, err, test.fails)
		}
	}
}

// CA-17: a token goes nowhere in clear text, whatever the hub is trusted for.
func TestTokenWithoutTLS(t *testing.T) {
	t.Parallel()
	invitation := hubapi.Invitation{Server: "http://hub.invalid", Token: accountToken}
	if _, err := invitation.Hub(hubapi.Trust{CA: fakehub.New(t).CA()}); err == nil || !strings.Contains(err.Error(), "without TLS") {
		t.Errorf("error %v", err)
	}
}

// CA-17: the names in the bootstrap kubeconfig.
func TestBootstrapKubeconfig(t *testing.T) {
	t.Parallel()
	config := hubapi.Invitation{Server: "https://hub", Token: "t"}.Kubeconfig(hubapi.Trust{CA: []byte("ca")})
	context := config.Contexts["bootstrap"]
	if config.CurrentContext != "bootstrap" || context == nil || context.Cluster != "hub" || context.AuthInfo != "bootstrap" ||
		context.Namespace != "default" {
		t.Fatalf("context %+v", context)
	}
	if config.AuthInfos["bootstrap"].Token != "t" || config.Clusters["hub"].Server != "https://hub" {
		t.Errorf("kubeconfig %+v", config)
	}
}
