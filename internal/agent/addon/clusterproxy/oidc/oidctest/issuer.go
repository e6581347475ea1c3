// Package oidctest is an OIDC issuer for tests.
package oidctest

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// ClientID is the audience of the tokens.
const ClientID = "clusters"

// Issuer serves its configuration and its keys.
type Issuer struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	down     bool
	keys     []key
}

type key struct {
	id      string
	private *rsa.PrivateKey
}

// Start starts an issuer with one key.
func Start(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{}
	i.Rotate(t)
	i.Server = httptest.NewTLSServer(http.HandlerFunc(i.serve))
	t.Cleanup(i.Close)
	return i
}

// CA is what the issuer is verified by, in PEM.
func (i *Issuer) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw})
}

// Config is the Config of a cluster that trusts the issuer, in YAML; more are lines of it.
func (i *Issuer) Config(more string) string {
	return fmt.Sprintf("issuerURL: %s\nclientID: %s\n%s", i.URL, ClientID, more)
}

// Rotate has the issuer sign with a new key from now on, and forget the others.
func (i *Issuer) Rotate(t testing.TB) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = []key{{id: rand.Text(), private: private}}
}

// SetDown has the issuer answer with an error, or as usual again.
func (i *Issuer) SetDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Requests has the paths of the requests so far.
func (i *Issuer) Requests() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]string(nil), i.requests...)
}

func (i *Issuer) serve(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.requests = append(i.requests, r.URL.Path)
	switch {
	case i.down:
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Path == "/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	case r.URL.Path == "/keys":
		set := jose.JSONWebKeySet{}
		for _, k := range i.keys {
			set.Keys = append(set.Keys, jose.JSONWebKey{KeyID: k.id, Key: k.private.Public(), Algorithm: "RS256", Use: "sig"})
		}
		_ = json.NewEncoder(w).Encode(set)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// Claims are those of a good token of a user, with more of them, or others: nil leaves one out.
func (i *Issuer) Claims(user string, more map[string]any) map[string]any {
	claims := map[string]any{"iss": i.URL, "aud": ClientID, "sub": user, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(claims, more)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

// Token is a token with the claims, which the issuer has signed.
func (i *Issuer) Token(t testing.TB, claims map[string]any) string {
	t.Helper()
	i.mu.Lock()
	k := i.keys[0]
	i.mu.Unlock()
	return Sign(t, jose.RS256, k.private, k.id, claims)
}

// PublicKey is that of the key which the issuer signs with, and its ID.
func (i *Issuer) PublicKey() (*rsa.PublicKey, string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return &i.keys[0].private.PublicKey, i.keys[0].id
}

// Sign makes a token of claims, with a key of anybody.
func Sign(t testing.TB, algorithm jose.SignatureAlgorithm, private any, id string, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: private, KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(marshal(t, claims))
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Unsigned is a token with the algorithm none.
func Unsigned(t testing.TB, claims map[string]any) string {
	t.Helper()
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(marshal(t, claims)) + "."
}

func marshal(t testing.TB, claims map[string]any) []byte {
	t.Helper()
	content, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
