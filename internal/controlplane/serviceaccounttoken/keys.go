// Package serviceaccounttoken signs service account tokens and verifies them, with keys that rotate while the API server
// runs.
package serviceaccounttoken

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// publishedAge is how long those who fetch the public keys may keep them, in seconds. A key is published for at least
// that long before it signs.
const publishedAge = 3600

// Keys are the key that signs tokens and the public keys that verify them: of keys that signed before, and of the one
// that signs next.
type Keys struct {
	keyFile, bundleFile string
	current             atomic.Pointer[keySet]

	mu        sync.Mutex
	listeners []serviceaccount.Listener
}

type keySet struct {
	private any
	public  serviceaccount.PublicKeysGetter
	// until is for how long each public key verifies, by its ID.
	until map[string]time.Time
}

// Load reads the private key that signs from keyFile, and the certificates of the keys that verify from bundleFile, both
// in PEM. A key verifies until its certificate expires; the keeper of the bundle then takes it out.
func Load(keyFile, bundleFile string) (*Keys, error) {
	k := &Keys{keyFile: keyFile, bundleFile: bundleFile}
	return k, k.Reload()
}

// Reload reads the files again after they changed. When it fails, the keys stay as they were.
func (k *Keys) Reload() error {
	next, err := k.read()
	if err != nil {
		return fmt.Errorf("read the service account keys: %w", err)
	}
	k.current.Store(next)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.listeners {
		l.Enqueue()
	}
	return nil
}

func (k *Keys) read() (*keySet, error) {
	private, err := keyutil.PrivateKeyFromFile(k.keyFile)
	if err != nil {
		return nil, err
	}
	certificates, err := certutil.CertsFromFile(k.bundleFile)
	if err != nil {
		return nil, err
	}
	set := &keySet{private: private, until: map[string]time.Time{}}
	var keys []any
	for _, c := range certificates {
		keys = append(keys, c.PublicKey)
	}
	if set.public, err = serviceaccount.StaticPublicKeysGetter(keys); err != nil {
		return nil, err
	}
	for i, key := range set.public.GetPublicKeys(context.Background(), "") {
		set.until[key.KeyID] = certificates[i].NotAfter
	}
	return set, nil
}

// AddListener implements serviceaccount.PublicKeysGetter. The listener is called for every Reload.
func (k *Keys) AddListener(l serviceaccount.Listener) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listeners = append(k.listeners, l)
}

// GetCacheAgeMaxSeconds implements serviceaccount.PublicKeysGetter.
func (k *Keys) GetCacheAgeMaxSeconds() int { return publishedAge }

// GetPublicKeys implements serviceaccount.PublicKeysGetter.
func (k *Keys) GetPublicKeys(ctx context.Context, keyID string) []serviceaccount.PublicKey {
	return k.current.Load().public.GetPublicKeys(ctx, keyID)
}

// VerifiesUntil says for how long the key of a token verifies it, whatever the token itself says of its end. It is the
// zero time for what is no token of these keys.
func (k *Keys) VerifiesUntil(token string) time.Time {
	parsed, err := jwt.ParseSigned(token)
	if err != nil || len(parsed.Headers) != 1 {
		return time.Time{}
	}
	return k.current.Load().until[parsed.Headers[0].KeyID]
}

// Generator signs tokens in the name of an issuer, each with the key of its moment.
func (k *Keys) Generator(issuer string) serviceaccount.TokenGenerator {
	return generator{keys: k, issuer: issuer}
}

type generator struct {
	keys   *Keys
	issuer string
}

// GenerateToken implements serviceaccount.TokenGenerator.
func (g generator) GenerateToken(ctx context.Context, claims *jwt.Claims, privateClaims any) (string, error) {
	signer, err := serviceaccount.JWTTokenGenerator(g.issuer, g.keys.current.Load().private)
	if err != nil {
		return "", err
	}
	return signer.GenerateToken(ctx, claims, privateClaims)
}
