package bootstrap

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-25: the events say why an agent registers, once and not with every attempt.
func TestWhyItRegisters(t *testing.T) {
	t.Parallel()
	var reasons []string
	b := &Bootstrap{
		Identity: identity.Identity{Cluster: "cluster1", Agent: "agent1"},
		Store:    &hubkubeconfig.Store{Dir: t.TempDir()},
		Record:   func(_, reason, _, _ string, _ ...any) { reasons = append(reasons, reason) },
		Clock:    clock.RealClock{},
	}
	attempt := func() {
		t.Helper()
		if credential, err := b.credential(t.Context()); credential != nil || err != nil {
			t.Fatalf("credential %v, error %v", credential, err)
		}
	}
	attempt()
	attempt()
	for _, file := range []string{fleet.KeyKubeconfig, fleet.KeyTLSCert, fleet.KeyTLSKey} {
		if err := os.WriteFile(filepath.Join(b.Store.Dir, file), []byte("broken"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	attempt()
	attempt()
	if want := []string{fleet.EventNoValidCertificateFound, fleet.EventCertificateValidationFailed}; !slices.Equal(reasons, want) {
		t.Errorf("events %q, want %q", reasons, want)
	}
}

// newHub is a hub that gives everybody the same answer, and how a bootstrap kubeconfig describes it.
func newHub(t *testing.T, status int) *clientcmdapi.Config {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Code: int32(status)})
	})
}

func serve(t *testing.T, handler http.HandlerFunc) *clientcmdapi.Config {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: server.URL, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"bootstrap": {Token: "abcdef.0123456789abcdef"}},
		Contexts:       map[string]*clientcmdapi.Context{"bootstrap": {Cluster: "hub", AuthInfo: "bootstrap"}},
		CurrentContext: "bootstrap",
	}
}

// registered is an agent with a credential for one hub, and the bootstrap kubeconfig for another.
func registered(t *testing.T, with, now *clientcmdapi.Config) (*Bootstrap, *hubkubeconfig.Credential) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bootstrap")
	if err := clientcmd.WriteToFile(*now, file); err != nil {
		t.Fatal(err)
	}
	b := &Bootstrap{
		Kubeconfigs: []string{file}, Identity: identity.Identity{Cluster: "cluster1", Agent: "agent1"},
		Store: &hubkubeconfig.Store{Dir: t.TempDir()}, Clock: clock.RealClock{},
	}
	key, encoded, err := hubkubeconfig.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: b.Identity.User()},
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := cert.EncodeCertificates(parsed)
	if err != nil {
		t.Fatal(err)
	}
	credential, err := hubkubeconfig.New(with, b.Identity, certificate, encoded)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Store.Save(t.Context(), credential); err != nil {
		t.Fatal(err)
	}
	return b, credential
}

// RG-03 RG-12: a change that came before the bootstrap kubeconfigs are followed, while the agent was about to connect, takes effect.
func TestChangeBeforeFollow(t *testing.T) {
	t.Parallel()
	before := newHub(t, http.StatusForbidden)
	now := before.DeepCopy()
	now.Clusters["hub"].TLSServerName = "hub.example.com"
	b, _ := registered(t, before, now)
	logged := make(chan string, 10)
	b.Record = func(_, reason, _, _ string, _ ...any) { logged <- reason }
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Follow(ctx) }()
	err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		credential, err := b.Store.Load()
		return err == nil && credential.MadeFor(now) == nil, err
	})
	if err != nil {
		t.Errorf("the change has no effect: %v", err)
	}
	if got := <-logged; got != "AdditonalSecretDataChanged" {
		t.Errorf("event %s", got)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// RG-12: an agent whose bootstrap kubeconfig names another hub registers there, also if that takes several attempts and the hub
// that it comes from would still have it.
func TestMovedHub(t *testing.T) {
	t.Parallel()
	b, credential := registered(t, newHub(t, http.StatusForbidden), newHub(t, http.StatusUnauthorized))
	for attempt := range 2 {
		if stays, err := b.stays(t.Context(), credential); stays || err != nil {
			t.Errorf("attempt %d: it stays %t, %v", attempt, stays, err)
		}
	}
}

// RG-12: whatever a proxy in front of the hub answers at a new address, the agent keeps its credential, and that of the address before.
func TestMovedBehindProxy(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound} {
		proxy := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "a proxy is in the way", status) })
		b, credential := registered(t, newHub(t, http.StatusForbidden), proxy)
		if stays, err := b.stays(t.Context(), credential); !stays || err != nil {
			t.Errorf("%d: it stays %t, %v", status, stays, err)
		}
		if now, err := b.Store.Load(); err != nil || now.MadeFor(proxy) == nil {
			t.Errorf("%d: the credential is for the proxy (%v)", status, err)
		}
	}
}

// RG-03: an agent with a credential goes on while its bootstrap kubeconfig leads nowhere. One without says what is wrong.
func TestBootstrapKubeconfigThatLeadsNowhere(t *testing.T) {
	t.Parallel()
	before := newHub(t, http.StatusForbidden)
	noContext, noCluster := before.DeepCopy(), before.DeepCopy()
	noContext.CurrentContext = "other"
	noCluster.Clusters = nil
	for name, now := range map[string]*clientcmdapi.Config{"empty": {}, "no context": noContext, "no cluster": noCluster} {
		b, credential := registered(t, before, now)
		if stays, err := b.stays(t.Context(), credential); !stays || err != nil {
			t.Errorf("%s: it stays %t, %v", name, stays, err)
		}
		if _, err := b.choose(t.Context(), b.candidates()); err == nil || !strings.Contains(err.Error(), "is not among the c") ||
			!strings.Contains(err.Error(), b.Kubeconfigs[0]) {
			t.Errorf("%s: an agent without a credential: %v", name, err)
		}
	}
}

// RG-12: of several bootstrap kubeconfigs that differ from the credential, it is reported how that of its hub does.
func TestSyncCredentialReportsItsHub(t *testing.T) {
	t.Parallel()
	before := newHub(t, http.StatusForbidden)
	now, other := before.DeepCopy(), before.DeepCopy()
	now.Clusters["hub"].TLSServerName, other.Clusters["hub"].Server = "hub.example.com", "https://other.example.com"
	b, credential := registered(t, before, now)
	b.Kubeconfigs = append(b.Kubeconfigs, filepath.Join(t.TempDir(), "other"))
	if err := clientcmd.WriteToFile(*other, b.Kubeconfigs[1]); err != nil {
		t.Fatal(err)
	}
	var logged string
	b.Record = func(_, _, _, note string, args ...any) { logged = fmt.Sprintf(note, args...) }
	if found, err := b.syncCredential(t.Context(), credential); found != credentialCurrent || err != nil {
		t.Fatalf("%v, %v", found, err)
	}
	if !strings.Contains(logged, "hub.example.com") || strings.Contains(logged, "other.example.com") {
		t.Errorf("reported %q", logged)
	}
}

// An http:// hub gets no token in clear text, and is not trusted: the agent does not register there, and one that has a credential of
// another address keeps that.
func TestHubWithoutTLS(t *testing.T) {
	t.Parallel()
	before := newHub(t, http.StatusForbidden)
	reached := make(chan struct{}, 10)
	cleartext := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached <- struct{}{} }))
	t.Cleanup(cleartext.Close)
	now := before.DeepCopy()
	now.Clusters["hub"].Server = cleartext.URL
	b, credential := registered(t, before, now)
	if stays, err := b.stays(t.Context(), credential); !stays || err != nil {
		t.Errorf("an agent with a credential stays: %t, %v", stays, err)
	}
	if _, err := b.choose(t.Context(), b.candidates()); err == nil || !strings.Contains(err.Error(), "is reached without TLS") ||
		!strings.Contains(err.Error(), cleartext.URL) {
		t.Errorf("an agent without a credential: %v", err)
	}
	select {
	case <-reached:
		t.Error("the hub was asked something")
	default:
	}
}

// WK-03: only an API server that says of itself that it has no such cluster knows none.
func TestKnows(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/apis/cluster.open-cluster-management.io/v1/managedclusters/old" {
				status = http.StatusTeapot
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	const missing = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":"old","group":"cluster.open-cluster-management.io","kind":"managedclusters"}}`
	for name, test := range map[string]struct {
		handler      http.HandlerFunc
		knows, fails bool
	}{
		"there": {answer(http.StatusOK,
			`{"kind":"ManagedCluster","apiVersion":"cluster.open-cluster-management.io/v1","metadata":{"name":"old"}}`), true, false},
		"not there":           {answer(http.StatusNotFound, missing), false, false},
		"a proxy":             {answer(http.StatusNotFound, `not found`), false, true},
		"an expired token":    {answer(http.StatusUnauthorized, ``), false, true},
		"not to be looked at": {answer(http.StatusForbidden, ``), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := serve(t, test.handler)
			b, _ := registered(t, hub, hub)
			if knows, err := b.ClusterExists(t.Context(), "old"); knows != test.knows || (err != nil) != test.fails {
				t.Errorf("knows %t, %v", knows, err)
			}
		})
	}
	b, _ := registered(t, newHub(t, http.StatusOK), serve(t, answer(http.StatusNotFound, missing)))
	if knows, err := b.ClusterExists(t.Context(), "old"); knows || err == nil {
		t.Errorf("another hub was asked: knows %t, %v", knows, err)
	}
}
