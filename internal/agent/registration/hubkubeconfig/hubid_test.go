package hubkubeconfig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority signs certificates of agents, in a name that all authorities here have.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, keyID []byte) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, SubjectKeyId: keyID}, key}
}

func (a *authority) register(t *testing.T) *Credential {
	t.Helper()
	key, encoded, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: self.User()}, NotBefore: now,
		NotAfter: now.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, crypto.Signer(key).Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(bootstrapConfig(), self, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), encoded)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func hubID(t *testing.T, c *Credential) string {
	t.Helper()
	id, err := c.HubID()
	if err != nil || id == "" {
		t.Fatalf("hub %q, error %v", id, err)
	}
	return id
}

// RG-60, WK-03: a hub is distinguished from another at the same address by who signs there, and stays the same whatever else changes.
func TestHubID(t *testing.T) {
	t.Parallel()
	one, other, nameless := newAuthority(t, []byte("one")), newAuthority(t, []byte("other")), newAuthority(t, nil)
	registered := one.register(t)
	id := hubID(t, registered)
	if again := hubID(t, one.register(t)); again != id {
		t.Error("it is another hub when the agent registers again")
	}
	if hubID(t, other.register(t)) == id {
		t.Error("a hub with another authority is taken to be the same")
	}
	if first := hubID(t, nameless.register(t)); first == hubID(t, nameless.register(t)) {
		t.Error("where the authority does not name its key, any hub is taken to be the same")
	}

	moved := bootstrapConfig()
	moved.Clusters["hub"].Server = "https://moved.example.com"
	elsewhere, err := registered.For(moved)
	if err != nil {
		t.Fatal(err)
	}
	trusting, err := elsewhere.WithTrustBundle([]byte("next"))
	if err != nil {
		t.Fatal(err)
	}
	trusting.Certificate = other.register(t).Certificate // renewed, when the hub had rotated its authority
	if hubID(t, trusting) != id {
		t.Error("it is another hub when it is reached by another way and has another authority")
	}

	back, err := trusting.For(bootstrapConfig())
	if err != nil {
		t.Fatal(err)
	}
	moved.Clusters["hub"].Server = "https://third.example.com"
	further, err := trusting.For(moved)
	if err != nil {
		t.Fatal(err)
	}
	const first = "https://hub.example.com"
	for c, want := range map[*Credential]string{registered: "", elsewhere: first, trusting: first, further: first, back: ""} {
		if from, err := c.MovedFrom(); err != nil || from != want {
			t.Errorf("the hub has moved from %q, want %q: %v", from, want, err)
		}
	}

	config, err := clientcmd.Load(registered.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters["hub"].Extensions = nil
	foreign := *registered
	if foreign.Kubeconfig, err = clientcmd.Write(*config); err != nil {
		t.Fatal(err)
	}
	if hubID(t, &foreign) != id {
		t.Error("a credential of another agent is not judged by who signed it")
	}
}

// An agent that registers again at the address of a hub that has moved, as when its certificate has expired, is with the same hub; at
// another address, it is with another one.
func TestRegistersAgainWithAHubThatHasMoved(t *testing.T) {
	t.Parallel()
	store := &Store{Dir: filepath.Join(t.TempDir(), "hub-kubeconfig")}
	registered := newAuthority(t, []byte("one")).register(t)
	moved, another := bootstrapConfig(), bootstrapConfig()
	moved.Clusters["hub"].Server, another.Clusters["hub"].Server = "https://moved.example.com", "https://another.example.com"
	elsewhere, err := registered.For(moved)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Save(t.Context(), elsewhere); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		hub  *clientcmdapi.Config
		want string
	}{{moved, "https://hub.example.com"}, {another, ""}, {moved, ""}} {
		again, err := New(test.hub, self, registered.Certificate, registered.Key)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Save(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		loaded, err := store.Load()
		if err != nil || loaded == nil {
			t.Fatalf("loaded %v, %v", loaded, err)
		}
		if from, err := loaded.MovedFrom(); err != nil || from != test.want {
			t.Errorf("at %s, the hub has moved from %q, want %q: %v", test.hub.Clusters["hub"].Server, from, test.want, err)
		}
		if err := loaded.MadeFor(test.hub); err != nil {
			t.Error(err)
		}
	}
}
