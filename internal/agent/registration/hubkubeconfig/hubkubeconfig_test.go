package hubkubeconfig

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/capstan-io/capstan/internal/agent/registration/identity"
)

var (
	now  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	self = identity.Identity{Cluster: "cluster1", Agent: "agent1"}
)

func bootstrapConfig() *clientcmdapi.Config {
	return &clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"hub": {Server: "https://hub.example.com", CertificateAuthorityData: []byte("ca"),
			ProxyURL: "http://proxy.example.com:3128"}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"bootstrap": {Token: "abcdef.0123456789abcdef"}},
		Contexts:       map[string]*clientcmdapi.Context{"bootstrap": {Cluster: "hub", AuthInfo: "bootstrap"}},
		CurrentContext: "bootstrap",
	}
}

// issue makes a certificate of a user, valid for an hour from now.
func issue(t *testing.T, user string) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user}, NotBefore: now,
		NotAfter: now.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, crypto.Signer(private).Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	if certificate, err = cert.EncodeCertificates(parsed); err != nil {
		t.Fatal(err)
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(private); err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

func newCredential(t *testing.T) *Credential {
	t.Helper()
	certificate, key := issue(t, self.User())
	c, err := New(bootstrapConfig(), self, certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// RG-09 RG-10: the layout, with the proxy of the bootstrap kubeconfig.
func TestLayout(t *testing.T) {
	t.Parallel()
	config, err := clientcmd.Load(newCredential(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	context, user, hub := config.Contexts["default-context"], config.AuthInfos["default-auth"], config.Clusters["hub"]
	if config.CurrentContext != "default-context" || context.Cluster != "hub" || context.AuthInfo != "default-auth" ||
		context.Namespace != "configuration" {
		t.Errorf("context: %+v", context)
	}
	if user.ClientCertificate != "tls.crt" || user.ClientKey != "tls.key" || user.Token != "" {
		t.Errorf("user: %+v", user)
	}
	if hub.Server != "https://hub.example.com" || string(hub.CertificateAuthorityData) != "ca" ||
		hub.ProxyURL != "http://proxy.example.com:3128" {
		t.Errorf("cluster: %+v", hub)
	}
}

// RG-03: each reason why a credential does not hold.
func TestValid(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(c *Credential, bootstrap *clientcmdapi.Config, id *identity.Identity, at *time.Time)
		want   string
	}{
		"valid": {func(*Credential, *clientcmdapi.Config, *identity.Identity, *time.Time) {}, ""},
		"expired": {func(_ *Credential, _ *clientcmdapi.Config, _ *identity.Identity, at *time.Time) {
			*at = now.Add(time.Hour)
		}, "expired"},
		"server": {func(_ *Credential, b *clientcmdapi.Config, _ *identity.Identity, _ *time.Time) {
			b.Clusters["hub"].Server = "https://other"
		}, "moved from https://hub.example.com to https://other"},
		"proxy": {func(_ *Credential, b *clientcmdapi.Config, _ *identity.Identity, _ *time.Time) {
			b.Clusters["hub"].ProxyURL = "http://user:secret@proxy:1"
		}, `proxy to the hub changed from "http://proxy.example.com:3128" to "http://user:xxxxx@proxy:1"`},
		"tls-server-name": {func(_ *Credential, b *clientcmdapi.Config, _ *identity.Identity, _ *time.Time) {
			b.Clusters["hub"].TLSServerName = "hub"
		}, `tls-server-name of the hub changed from "" to "hub"`},
		"ca": {func(_ *Credential, b *clientcmdapi.Config, _ *identity.Identity, _ *time.Time) {
			b.Clusters["hub"].CertificateAuthorityData = []byte("next")
		}, "certificate authority"},
		"context's cluster": {func(_ *Credential, b *clientcmdapi.Config, _ *identity.Identity, _ *time.Time) {
			b.Clusters["second"] = b.Clusters["hub"]
			b.Contexts["bootstrap"].Cluster = "second"
		}, `called "second"`},
		"cluster": {func(_ *Credential, _ *clientcmdapi.Config, id *identity.Identity, _ *time.Time) {
			id.Cluster = "cluster2"
		}, "cluster2"},
		"agent": {func(_ *Credential, _ *clientcmdapi.Config, id *identity.Identity, _ *time.Time) { id.Agent = "agent2" }, "agent2"},
		"kubeconfig": {func(c *Credential, _ *clientcmdapi.Config, _ *identity.Identity, _ *time.Time) {
			c.Kubeconfig = []byte("{")
		}, "cannot be read"},
		"certificate": {func(c *Credential, _ *clientcmdapi.Config, _ *identity.Identity, _ *time.Time) {
			c.Certificate = []byte("none")
		}, "cannot be read"},
		"key": {func(c *Credential, _ *clientcmdapi.Config, _ *identity.Identity, _ *time.Time) {
			_, c.Key = issue(t, "other")
		}, "do not belong together"},
	} {
		c, bootstrap, id, at := newCredential(t), bootstrapConfig(), self, now
		test.change(c, bootstrap, &id, &at)
		err := errors.Join(c.Valid(id, at), c.MadeFor(bootstrap))
		if (test.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	if err := newCredential(t).Valid(self, now); err != nil {
		t.Errorf("without a bootstrap kubeconfig: %v", err)
	}
}

// R4: the CA bundle follows the hub while the credential stays one for the same bootstrap kubeconfig; for a changed one it is
// made again with the same certificate.
func TestTrustBundle(t *testing.T) {
	t.Parallel()
	c := newCredential(t)
	next, err := c.WithTrustBundle([]byte("ca and next"))
	if err != nil {
		t.Fatal(err)
	}
	if bundle, err := next.TrustBundle(); err != nil || string(bundle) != "ca and next" {
		t.Errorf("bundle %q, %v", bundle, err)
	}
	if err := next.MadeFor(bootstrapConfig()); err != nil {
		t.Errorf("with another bundle it is not of the same hub: %v", err)
	}
	changed := bootstrapConfig()
	changed.Clusters["hub"].CertificateAuthorityData = []byte("another")
	if next.MadeFor(changed) == nil {
		t.Error("another CA in the bootstrap kubeconfig is not noticed")
	}
	moved, err := next.For(changed)
	if err != nil {
		t.Fatal(err)
	}
	if bundle, err := moved.TrustBundle(); err != nil || string(bundle) != "another" || moved.MadeFor(changed) != nil ||
		string(moved.Certificate) != string(c.Certificate) {
		t.Errorf("made for the changed kubeconfig: bundle %q, %v, %v", bundle, err, moved.MadeFor(changed))
	}
}

// RG-03: a hub kubeconfig that another agent made has no record of its origin, and is compared by what it says.
func TestForeignKubeconfig(t *testing.T) {
	t.Parallel()
	c := newCredential(t)
	config, err := clientcmd.Load(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters["hub"].Extensions = nil
	if c.Kubeconfig, err = clientcmd.Write(*config); err != nil {
		t.Fatal(err)
	}
	if err := c.MadeFor(bootstrapConfig()); err != nil {
		t.Error(err)
	}
	changed := bootstrapConfig()
	changed.Clusters["hub"].Server = "https://other"
	if c.MadeFor(changed) == nil {
		t.Error("another server is not noticed")
	}
}

// RG-09: saved and loaded, readable by the owner alone.
func TestStore(t *testing.T) {
	t.Parallel()
	s := &Store{Dir: filepath.Join(t.TempDir(), "hub-kubeconfig")}
	if c, err := s.Load(); c != nil || err != nil {
		t.Fatalf("an empty store holds %v, %v", c, err)
	}
	saved := newCredential(t)
	if err := s.Save(context.Background(), saved); err != nil {
		t.Fatal(err)
	}
	loaded, err := s.Load()
	if err != nil || loaded.Valid(self, now) != nil {
		t.Errorf("loaded %v, %v", loaded, err)
	}
	files, err := os.ReadDir(s.Dir)
	if err != nil || len(files) != 5 {
		t.Errorf("files %v, %v", files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
		}
	}
}

// A crash between two files leaves a key and a certificate of different generations; the next start completes the change.
func TestRestoreCompletesWhatACrashLeft(t *testing.T) {
	t.Parallel()
	s := &Store{Dir: t.TempDir()}
	old, next := newCredential(t), newCredential(t)
	if err := s.Save(context.Background(), old); err != nil {
		t.Fatal(err)
	}
	entry, err := json.Marshal(map[string][]byte{"tls.key": next.Key, "tls.crt": next.Certificate})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{journal: entry, "tls.key": next.Key} {
		if err := os.WriteFile(filepath.Join(s.Dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := s.Load(); err != nil || c.Valid(self, now) == nil {
		t.Fatalf("the half-written credential is valid, %v", err)
	}
	if err := s.Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
	c, err := s.Load()
	if err != nil || c.Valid(self, now) != nil || string(c.Certificate) != string(next.Certificate) {
		t.Errorf("restored %v, %v", c, err)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, journal)); !os.IsNotExist(err) {
		t.Errorf("the journal is still there: %v", err)
	}
}
