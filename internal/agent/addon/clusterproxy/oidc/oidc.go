// Package oidc knows users of a managed cluster by the tokens that an OIDC issuer has given them.
package oidc

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/reach/access"
)

const (
	// MaxToken is how long a token may be, in bytes: some have hundreds of groups.
	MaxToken = 64 << 10
	// maxCached is how many tokens are remembered.
	maxCached = 4096
	// issuerTimeout is how long the issuer may take to answer, and maxAnswer how much it may answer, in bytes.
	issuerTimeout = 10 * time.Second
	maxAnswer     = 1 << 20
	// refresh is after how long the keys of the issuer, and where they are, are read again, and refreshGrace how long requests do not wait
	// for that. A key that the issuer has withdrawn counts no longer than both, whether or not the issuer answers.
	refresh      = time.Hour
	refreshGrace = 5 * time.Minute
	// Tokens that say they are signed with a key that is not known have the keys of the issuer read again, once in keyRefresh, and keyBurst
	// times in a row.
	keyRefresh = 5 * time.Second
	keyBurst   = 5
)

// issuerBackoff has the delays before another request to an issuer that has not answered.
func issuerBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Steps: 16, Cap: 30 * time.Second}
}

// ErrUnavailable says that it is not known at the moment whether a token is valid.
var ErrUnavailable = errors.New("the issuer does not answer")

// Authenticator verifies the tokens of an issuer. It reads the keys of the issuer when it gets the first token.
type Authenticator struct {
	config    *Config
	clock     clock.Clock
	transport http.RoundTripper
	users     *cache.LRUExpireCache
	discovery singleflight.Group

	mu sync.Mutex
	// verifier is nil before the issuer has answered, which it did at.
	verifier *oidc.IDTokenVerifier
	at       time.Time
	// problem is why the last request to it failed, and retry when the next is due.
	problem error
	retry   time.Time
	backoff *wait.Backoff
}

// New returns an Authenticator for a Config that has been parsed.
func New(config *Config, c clock.Clock) *Authenticator {
	roots, err := x509.SystemCertPool()
	if len(config.CA) > 0 || err != nil {
		roots = x509.NewCertPool()
		roots.AppendCertsFromPEM(config.CA)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
		TLSHandshakeTimeout: issuerTimeout, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return &Authenticator{config: config, clock: c, transport: transport, users: cache.NewLRUExpireCacheWithClock(maxCached, c),
		backoff: issuerBackoff()}
}

// discoverer returns a client for discovery, whose requests follow each other after delays.
func (a *Authenticator) discoverer() *http.Client { return a.limited(rate.NewLimiter(rate.Inf, 0)) }

// keyReader returns a client that reads the keys of the issuer. What anybody may have it do is limited, and neither holds up discovery nor
// what is read first of the keys that have been discovered anew.
func (a *Authenticator) keyReader() *http.Client {
	return a.limited(rate.NewLimiter(rate.Every(keyRefresh), keyBurst))
}

func (a *Authenticator) limited(limit *rate.Limiter) *http.Client {
	return &http.Client{Transport: &bounded{next: a.transport, limit: limit, clock: a.clock}, Timeout: issuerTimeout,
		CheckRedirect: checkRedirect}
}

func checkRedirect(r *http.Request, via []*http.Request) error {
	if r.URL.Scheme != "https" {
		return fmt.Errorf("it redirects to %s, which has no TLS", r.URL.Redacted())
	}
	if len(via) > 3 {
		return errors.New("it redirects more than three times")
	}
	return nil
}

// bounded limits the requests to an issuer, and the size of its responses.
type bounded struct {
	next  http.RoundTripper
	limit *rate.Limiter
	clock clock.PassiveClock
}

func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if !b.limit.AllowN(b.clock.Now(), 1) {
		return nil, fmt.Errorf("%w: it has been asked several times in the last seconds; try again", ErrUnavailable)
	}
	if r.URL.Scheme != "https" {
		return nil, fmt.Errorf("its keys are at %s, which has no TLS", r.URL.Redacted())
	}
	response, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%w: %s", ErrUnavailable, response.Status)
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, maxAnswer), response.Body}
	return response, nil
}

// TTL is how long what has been found out about a token may count.
func (a *Authenticator) TTL() time.Duration { return a.config.TokenReviewCacheTTL.Duration }

// Concerns reports whether a token says that the issuer has issued it.
func (a *Authenticator) Concerns(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	var decoded struct {
		Issuer string `json:"iss"`
	}
	return json.Unmarshal(payload, &decoded) == nil && decoded.Issuer == a.config.IssuerURL
}

// Authenticate says who has the token. It fails with ErrUnavailable if that is not known at the moment, and with the reason if the token
// is not good. It waits for the issuer no longer than that may take.
func (a *Authenticator) Authenticate(ctx context.Context, token string) (access.User, error) {
	key := sha256.Sum256([]byte(token))
	if cached, found := a.users.Get(key); found {
		return cached.(access.User), nil //nolint:forcetypeassert // nothing else is put there
	}
	verifier, err := a.ready(ctx)
	if err != nil {
		return access.User{}, err
	}
	verified, err := verify(ctx, verifier, token)
	if err != nil {
		return access.User{}, err
	}
	user, err := a.userOf(verified)
	if err != nil {
		return access.User{}, err
	}
	if left := min(a.TTL(), verified.Expiry.Sub(a.clock.Now())); left > 0 {
		a.users.Add(key, user, left)
	}
	return user, nil
}

// verify fails with ErrUnavailable if the keys cannot be read.
func verify(ctx context.Context, verifier *oidc.IDTokenVerifier, token string) (*oidc.IDToken, error) {
	var failure error
	verified, err := verifier.Verify(context.WithValue(ctx, failureKey{}, &failure), token)
	if errors.Is(failure, ErrUnavailable) {
		return nil, failure
	}
	return verified, err
}

// failureKey is that of a place in a context for the error of keys, of which a verifier keeps the text alone.
type failureKey struct{}

// keys are those of the issuer.
type keys struct{ oidc.KeySet }

func (k keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := k.KeySet.VerifySignature(ctx, token)
	if failure, ok := ctx.Value(failureKey{}).(*error); ok {
		*failure = err
	}
	return payload, err
}

// ready returns the verifier, and has discovery run if there is none, or the one that there is has become old. It waits for discovery if
// there is none whose keys still count.
func (a *Authenticator) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	a.mu.Lock()
	now := a.clock.Now()
	verifier, age := a.verifier, now.Sub(a.at)
	problem, retryDue := a.problem, !now.Before(a.retry)
	a.mu.Unlock()
	if age > refresh+refreshGrace {
		verifier = nil
	}
	if verifier != nil && age <= refresh {
		return verifier, nil
	}
	if !retryDue {
		return verifier, notReady(verifier, problem)
	}
	discovered := a.discovery.DoChan("", func() (any, error) { return nil, a.discover(context.WithoutCancel(ctx)) })
	if verifier != nil {
		return verifier, nil
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	case result := <-discovered:
		if result.Err != nil {
			return nil, notReady(nil, result.Err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.verifier, notReady(a.verifier, a.problem)
}

func notReady(verifier *oidc.IDTokenVerifier, problem error) error {
	if verifier != nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, problem)
}

// discover finds out from the issuer where its keys are.
func (a *Authenticator) discover(ctx context.Context) error {
	address, err := keysOf(oidc.ClientContext(ctx, a.discoverer()), a.config.IssuerURL)
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if a.problem = err; err != nil {
		a.retry = now.Add(a.backoff.Step())
		return err
	}
	a.at, a.retry, a.backoff = now, time.Time{}, issuerBackoff()
	a.verifier = oidc.NewVerifier(a.config.IssuerURL, keys{oidc.NewRemoteKeySet(oidc.ClientContext(ctx, a.keyReader()), address)},
		&oidc.Config{ClientID: a.config.ClientID, SupportedSigningAlgs: a.config.SigningAlgs, Now: a.clock.Now})
	return nil
}

// keysOf reads from an issuer where its keys are.
func keysOf(ctx context.Context, issuer string) (address string, err error) {
	provider, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		return "", err
	}
	var decoded struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&decoded); err != nil {
		return "", err
	}
	if decoded.Keys == "" {
		return "", errors.New("it does not say where its keys are: its configuration has no jwks_uri")
	}
	return decoded.Keys, nil
}

// userOf is who the user is on the cluster.
func (a *Authenticator) userOf(token *oidc.IDToken) (access.User, error) {
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return access.User{}, err
	}
	if err := a.checkRequired(claims); err != nil {
		return access.User{}, err
	}
	name, isText := claims[a.config.UsernameClaim].(string)
	if !isText || name == "" {
		return access.User{}, fmt.Errorf("its claim %s has no name", a.config.UsernameClaim)
	}
	if verified, decoded := claims["email_verified"]; a.config.UsernameClaim == "email" && decoded && verified != true {
		return access.User{}, errors.New("its claim email has an address that the issuer has not verified")
	}
	user := access.User{Name: a.config.UsernamePrefix + name}
	if err := a.checkName("user", user.Name); err != nil {
		return access.User{}, err
	}
	groups, err := a.groupsIn(claims)
	if err != nil {
		return access.User{}, err
	}
	for _, group := range groups {
		group = a.config.GroupsPrefix + group
		if err := a.checkName("group", group); err != nil {
			return access.User{}, err
		}
		user.Groups = append(user.Groups, group)
	}
	return user, nil
}

func (a *Authenticator) checkRequired(claims map[string]any) error {
	for name, want := range a.config.RequiredClaims {
		got, found := claims[name]
		if !found {
			return fmt.Errorf("it does not have the claim %s, which is required", name)
		}
		if got != want {
			return fmt.Errorf("its claim %s has another value than the one that is required", name)
		}
	}
	return nil
}

func (a *Authenticator) groupsIn(claims map[string]any) ([]string, error) {
	if a.config.GroupsClaim == "" {
		return nil, nil
	}
	switch value := claims[a.config.GroupsClaim].(type) {
	case nil:
		return nil, nil
	case string:
		return []string{value}, nil
	case []any:
		groups := make([]string, 0, len(value))
		for _, element := range value {
			group, isText := element.(string)
			if !isText {
				return nil, fmt.Errorf("its claim %s has a group that is no text", a.config.GroupsClaim)
			}
			groups = append(groups, group)
		}
		return groups, nil
	}
	return nil, fmt.Errorf("its claim %s is neither a group nor a list of groups", a.config.GroupsClaim)
}

// checkName refuses names that nobody has whom the issuer knows, and those that would be another one in the header of a request.
func (a *Authenticator) checkName(of, name string) error {
	if name == "" {
		return fmt.Errorf("its %s is empty", of)
	}
	if err := access.CheckIdentity("its "+of, name); err != nil {
		return err
	}
	for _, reserved := range a.config.ReservedNamePrefixes {
		if strings.HasPrefix(name, reserved) {
			return fmt.Errorf("its %s %q has a name that begins with %s, which is reserved; a prefix for users and one for groups would tell them apart",
				of, name, reserved)
		}
	}
	return nil
}
