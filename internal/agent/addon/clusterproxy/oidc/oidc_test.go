package oidc_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/apimachinery/pkg/util/wait"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/agent/addon/clusterproxy/oidc"
	"github.com/capstan-io/capstan/internal/agent/addon/clusterproxy/oidc/oidctest"
)

func authenticator(t *testing.T, issuer *oidctest.Issuer, more string) (*oidc.Authenticator, *testclock.FakeClock) {
	t.Helper()
	config, err := oidc.Parse(issuer.Config(more), issuer.CA())
	if err != nil {
		t.Fatal(err)
	}
	clock := testclock.NewFakeClock(time.Now())
	return oidc.New(config, clock), clock
}

// CP-09: who has a token is the user, and in the groups, that its claims name, with the prefixes.
func TestUser(t *testing.T) {
	t.Parallel()
	issuer := oidctest.Start(t)
	for name, test := range map[string]struct {
		more   string
		claims map[string]any
		user   string
		groups []string
	}{
		"by default": {"", map[string]any{"groups": []string{"ops"}}, issuer.URL + "#alice", nil},
		"prefixes": {"usernamePrefix: 'oidc:'\ngroupsClaim: groups\ngroupsPrefix: 'oidc:'", map[string]any{"groups": []string{"ops", "system:x"}},
			"oidc:alice", []string{"oidc:ops", "oidc:system:x"}},
		"one group":          {"groupsClaim: roles\nusernamePrefix: '-'\ngroupsPrefix: '-'", map[string]any{"roles": "ops"}, "alice", []string{"ops"}},
		"no groups":          {"groupsClaim: groups\nusernamePrefix: '-'", nil, "alice", nil},
		"another claim":      {"usernameClaim: email\nusernamePrefix: '-'", map[string]any{"email": "alice@example.com"}, "alice@example.com", nil},
		"verified":           {"usernameClaim: email\nusernamePrefix: '-'", map[string]any{"email": "a@b", "email_verified": true}, "a@b", nil},
		"required claims":    {"requiredClaims: {hd: example.com}\nusernamePrefix: '-'", map[string]any{"hd": "example.com"}, "alice", nil},
		"several audiences":  {"usernamePrefix: '-'", map[string]any{"aud": []string{"other", oidctest.ClientID}}, "alice", nil},
		"nothing reserved":   {"usernamePrefix: '-'\nreservedNamePrefixes: []", map[string]any{"sub": "system:alice"}, "system:alice", nil},
		"reserved otherwise": {"usernamePrefix: '-'\nreservedNamePrefixes: ['x:']", map[string]any{"sub": "system:alice"}, "system:alice", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _ := authenticator(t, issuer, test.more)
			token := issuer.Token(t, issuer.Claims("alice", test.claims))
			for range 2 { // the second time from what is remembered
				user, err := a.Authenticate(t.Context(), token)
				if err != nil || user.Name != test.user || !slices.Equal(user.Groups, test.groups) || !a.Concerns(token) {
					t.Errorf("%+v %v, want %s %s", user, err, test.user, test.groups)
				}
			}
		})
	}
}

// CP-09: tokens that are not good are refused, with the reason.
func TestRefused(t *testing.T) {
	t.Parallel()
	issuer := oidctest.Start(t)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, id := issuer.PublicKey()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	secret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	signed := func(more map[string]any) string { return issuer.Token(t, issuer.Claims("alice", more)) }
	good := signed(nil)
	parts, ofBob := strings.Split(good, "."), strings.Split(signed(map[string]any{"sub": "bob"}), ".")
	for name, test := range map[string]struct{ more, token, want string }{
		"for another client":      {"", signed(map[string]any{"aud": "other"}), "expected audience"},
		"for nobody":              {"", signed(map[string]any{"aud": nil}), "expected audience"},
		"of another issuer":       {"", signed(map[string]any{"iss": "https://other.invalid"}), "issued by a different provider"},
		"expired":                 {"", signed(map[string]any{"exp": time.Now().Add(-time.Second).Unix()}), "token is expired"},
		"without an end":          {"", signed(map[string]any{"exp": nil}), "token is expired"},
		"not yet":                 {"", signed(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), "before the nbf"},
		"unsigned":                {"", oidctest.Unsigned(t, issuer.Claims("alice", nil)), "unexpected signature algorithm"},
		"signed with the public":  {"", oidctest.Sign(t, jose.HS256, secret, id, issuer.Claims("alice", nil)), "unexpected signature algorithm"},
		"another algorithm":       {"signingAlgs: [ES256]", good, "unexpected signature algorithm"},
		"signed by somebody":      {"", oidctest.Sign(t, jose.RS256, other, id, issuer.Claims("alice", nil)), "failed to verify"},
		"with an unknown key":     {"", oidctest.Sign(t, jose.RS256, other, "x", issuer.Claims("alice", nil)), "failed to verify"},
		"changed":                 {"", parts[0] + "." + ofBob[1] + "." + parts[2], "failed to verify"},
		"no token":                {"", "x.y.z", "malformed"},
		"reserved":                {"usernamePrefix: '-'", signed(map[string]any{"sub": "system:admin"}), "is reserved"},
		"reserved by prefix":      {"usernamePrefix: 'system:'", good, "is reserved"},
		"reserved, after a space": {"usernamePrefix: '-'", signed(map[string]any{"sub": " system:admin"}), "begins or ends with a space"},
		"two headers":             {"usernamePrefix: '-'", signed(map[string]any{"sub": "a\r\nImpersonate-Group: b"}), "control character"},
		"reserved group":          {"groupsClaim: groups", signed(map[string]any{"groups": []string{"a", "system:masters"}}), "is reserved"},
		"empty group":             {"groupsClaim: groups", signed(map[string]any{"groups": []string{""}}), "is empty"},
		"a user of the hub":       {"usernamePrefix: '-'\nreservedNamePrefixes: []", signed(map[string]any{"sub": "cluster:hub:bob"}), "is reserved"},
		"a group of the hub": {"groupsClaim: groups\nreservedNamePrefixes: []", signed(map[string]any{"groups": "cluster:hub:system:masters"}),
			"is reserved"},
		"no name":                {"usernameClaim: email", good, "its claim email has no name"},
		"a name that is none":    {"usernameClaim: number", signed(map[string]any{"number": 1}), "its claim number has no name"},
		"not verified":           {"usernameClaim: email", signed(map[string]any{"email": "a@b", "email_verified": false}), "has not verified"},
		"verified, as text":      {"usernameClaim: email", signed(map[string]any{"email": "a@b", "email_verified": "true"}), "has not verified"},
		"groups that are none":   {"groupsClaim: groups", signed(map[string]any{"groups": map[string]any{"a": "b"}}), "neither a group"},
		"a group that is none":   {"groupsClaim: groups", signed(map[string]any{"groups": []any{1}}), "no text"},
		"without what it needs":  {"requiredClaims: {hd: example.com}", good, "does not have the claim hd"},
		"another than it needs":  {"requiredClaims: {hd: example.com}", signed(map[string]any{"hd": "example.org"}), "another value"},
		"another type than that": {"requiredClaims: {hd: '1'}", signed(map[string]any{"hd": 1}), "another value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _ := authenticator(t, issuer, test.more)
			user, err := a.Authenticate(t.Context(), test.token)
			if err == nil || errors.Is(err, oidc.ErrUnavailable) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v %v, want %q", user, err, test.want)
			}
		})
	}
}

// CP-09: tokens of others are none of its concern.
func TestConcerns(t *testing.T) {
	t.Parallel()
	issuer := oidctest.Start(t)
	a, _ := authenticator(t, issuer, "")
	for _, token := range []string{"", "x", "a.b", "a.!.c",
		issuer.Token(t, issuer.Claims("alice", map[string]any{"iss": "https://kubernetes.default.svc"})),
		issuer.Token(t, issuer.Claims("alice", map[string]any{"iss": issuer.URL + "/"}))} {
		if a.Concerns(token) {
			t.Errorf("it is to verify %q", token)
		}
	}
	if len(issuer.Requests()) > 0 {
		t.Errorf("the issuer is asked %s", issuer.Requests())
	}
}

// CP-09: a key that the issuer has begun to use counts at once, and one that it has withdrawn no more.
func TestRotation(t *testing.T) {
	t.Parallel()
	issuer := oidctest.Start(t)
	a, clock := authenticator(t, issuer, "tokenReviewCacheTTL: 0s")
	first := issuer.Token(t, issuer.Claims("alice", nil))
	if _, err := a.Authenticate(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	issuer.Rotate(t)
	second := issuer.Token(t, issuer.Claims("alice", nil))
	if _, err := a.Authenticate(t.Context(), second); err != nil {
		t.Errorf("with the new key: %v", err)
	}
	if _, err := a.Authenticate(t.Context(), first); err == nil {
		t.Error("the old key counts")
	}
	// One that is withdrawn without another that is used.
	issuer.Rotate(t)
	clock.Step(59 * time.Minute)
	if _, err := a.Authenticate(t.Context(), second); err != nil {
		t.Errorf("the key that is known: %v", err)
	}
	clock.Step(2 * time.Minute)
	third := issuer.Token(t, issuer.Claims("alice", map[string]any{"exp": clock.Now().Add(time.Hour).Unix()}))
	for range 50 { // there is another request to the issuer beside the first
		if _, err := a.Authenticate(t.Context(), third); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Authenticate(t.Context(), second); err == nil {
		t.Error("a key that was withdrawn an hour ago counts")
	}
}

// CP-09: what has been found out counts for ten seconds, and not longer than the token.
func TestCache(t *testing.T) {
	t.Parallel()
	issuer := oidctest.Start(t)
	a, clock := authenticator(t, issuer, "")
	token := issuer.Token(t, issuer.Claims("alice", map[string]any{"exp": clock.Now().Add(15 * time.Second).Unix()}))
	for _, step := range []struct {
		by   time.Duration
		good bool
	}{{0, true}, {9 * time.Second, true}, {2 * time.Second, true}, {5 * time.Second, false}} {
		clock.Step(step.by)
		if _, err := a.Authenticate(t.Context(), token); (err == nil) != step.good {
			t.Errorf("%s later: %v", step.by, err)
		}
	}
}

// CP-09: an issuer that cannot be reached is tried again, but not by each request, and then its tokens count.
func TestIssuerIsAway(t *testing.T) {
	t.Parallel()
	issuer := oidctest.Start(t)
	issuer.SetDown(true)
	a, clock := authenticator(t, issuer, "")
	token := issuer.Token(t, issuer.Claims("alice", nil))
	for range 10 {
		if _, err := a.Authenticate(t.Context(), token); !errors.Is(err, oidc.ErrUnavailable) || !strings.Contains(err.Error(), "503") {
			t.Fatal(err)
		}
	}
	if requests := issuer.Requests(); len(requests) != 1 {
		t.Errorf("the issuer is asked %s", requests)
	}
	clock.Step(time.Second)
	if _, err := a.Authenticate(t.Context(), token); !errors.Is(err, oidc.ErrUnavailable) {
		t.Fatal(err)
	}
	issuer.SetDown(false)
	clock.Step(time.Second)
	if _, err := a.Authenticate(t.Context(), token); !errors.Is(err, oidc.ErrUnavailable) {
		t.Errorf("the second wait is not longer: %v", err)
	}
	clock.Step(time.Second)
	if _, err := a.Authenticate(t.Context(), token); err != nil {
		t.Errorf("it is back: %v", err)
	}
	// Its keys cannot be read.
	issuer.Rotate(t)
	issuer.SetDown(true)
	if _, err := a.Authenticate(t.Context(), issuer.Token(t, issuer.Claims("alice", nil))); !errors.Is(err, oidc.ErrUnavailable) {
		t.Errorf("without its keys: %v", err)
	}
}

// CP-09: the keys of an issuer that does not answer any more count for an hour and five minutes, as it may have withdrawn them.
func TestKeysDoNotOutlastTheIssuer(t *testing.T) {
	t.Parallel()
	issuer := oidctest.Start(t)
	a, clock := authenticator(t, issuer, "tokenReviewCacheTTL: 0s")
	token := issuer.Token(t, issuer.Claims("alice", map[string]any{"exp": clock.Now().Add(24 * time.Hour).Unix()}))
	if _, err := a.Authenticate(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	issuer.SetDown(true)
	for _, step := range []struct {
		by   time.Duration
		good bool
	}{{59 * time.Minute, true}, {5 * time.Minute, true}, {2 * time.Minute, false}, {time.Second, false}, {2 * time.Hour, false}} {
		clock.Step(step.by)
		if _, err := a.Authenticate(t.Context(), token); (err == nil) != step.good || err != nil && !errors.Is(err, oidc.ErrUnavailable) {
			t.Errorf("%s later: %v", step.by, err)
		}
	}
	issuer.SetDown(false)
	clock.Step(time.Minute)
	if _, err := a.Authenticate(t.Context(), token); err != nil {
		t.Errorf("it is back: %v", err)
	}
}

// CP-09: tokens with made-up keys do not have the agent flood the issuer, nor keep others from being verified.
func TestUnknownKeys(t *testing.T) {
	t.Parallel()
	issuer := oidctest.Start(t)
	a, clock := authenticator(t, issuer, "tokenReviewCacheTTL: 0s")
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := issuer.Token(t, issuer.Claims("alice", nil))
	for range 100 {
		if _, err := a.Authenticate(t.Context(), oidctest.Sign(t, jose.RS256, other, rand.Text(), issuer.Claims("alice", nil))); err == nil {
			t.Fatal("a token of somebody else counts")
		}
		if _, err := a.Authenticate(t.Context(), good); err != nil {
			t.Fatal(err)
		}
	}
	if requests := issuer.Requests(); len(requests) > 1+5 {
		t.Errorf("the issuer is asked %d times", len(requests))
	}
	issuer.Rotate(t)
	clock.Step(5 * time.Second)
	if _, err := a.Authenticate(t.Context(), issuer.Token(t, issuer.Claims("alice", nil))); err != nil {
		t.Errorf("with a new key, after a while: %v", err)
	}
}

// CP-09: tokens with made-up keys do not keep it from being found out anew where the keys are, nor these from being read. Good tokens count
// all the time.
func TestUnknownKeysLeaveDiscoveryAlone(t *testing.T) {
	t.Parallel()
	issuer := oidctest.Start(t)
	a, clock := authenticator(t, issuer, "tokenReviewCacheTTL: 0s")
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	tomorrow := map[string]any{"exp": clock.Now().Add(24 * time.Hour).Unix()}
	good := issuer.Token(t, issuer.Claims("alice", tomorrow))
	if _, err := a.Authenticate(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	clock.Step(time.Hour)
	for range 10 {
		if _, err := a.Authenticate(t.Context(), oidctest.Sign(t, jose.RS256, other, rand.Text(), issuer.Claims("alice", tomorrow))); err == nil {
			t.Fatal("a token of somebody else counts")
		}
	}
	clock.Step(time.Second)
	isDiscovery := func(path string) bool { return strings.HasPrefix(path, "/.well-known/") }
	read := func(ctx context.Context) (bool, error) {
		if _, err := a.Authenticate(ctx, good); err != nil { // which does not wait for discovery
			return false, err
		}
		requests := issuer.Requests()[1:]
		discovery := slices.IndexFunc(requests, isDiscovery)
		return discovery >= 0 && len(requests) > discovery+1, nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, read); err != nil {
		t.Errorf("the issuer is asked only %s: %v", issuer.Requests(), err)
	}
}

// CP-09: an issuer is verified, and is the one that it says it is.
func TestIssuerIsVerified(t *testing.T) {
	t.Parallel()
	issuer := oidctest.Start(t)
	token := issuer.Token(t, issuer.Claims("alice", nil))
	config, err := oidc.Parse(issuer.Config(""), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := oidc.New(config, testclock.NewFakeClock(time.Now())).Authenticate(t.Context(), token); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("with the CAs of the system: %v", err)
	}
	cleartext := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(cleartext.Close)
	for body, want := range map[string]string{
		`{"issuer":"` + issuer.URL + `","jwks_uri":"` + issuer.URL + `/keys"}`: issuer.URL,
		`{"issuer":"SELF","jwks_uri":"http://x/keys"}`:                         "no TLS",
		`{"issuer":"SELF"}`: "no jwks_uri",
		`<html>`:            "decode",
		"":                  "no TLS",
	} {
		impostor := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body == "" {
				http.Redirect(w, r, cleartext.URL, http.StatusFound)
				return
			}
			_, _ = w.Write([]byte(strings.ReplaceAll(body, "SELF", "https://"+r.Host)))
		}))
		t.Cleanup(impostor.Close)
		config, err := oidc.Parse("issuerURL: "+impostor.URL+"\nclientID: "+oidctest.ClientID,
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: impostor.Certificate().Raw}))
		if err != nil {
			t.Fatal(err)
		}
		_, err = oidc.New(config, testclock.NewFakeClock(time.Now())).Authenticate(t.Context(), token)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", body, err, want)
		}
	}
}

// CP-09: what cannot be meant is refused, and the message names the field.
func TestParse(t *testing.T) {
	t.Parallel()
	const good = "issuerURL: https://issuer.invalid\nclientID: x\n"
	for text, want := range map[string]string{
		"clientID: x": "issuerURL", "issuerURL: http://issuer.invalid\nclientID: x": "issuerURL", "issuerURL: https://\nclientID: x": "issuerURL",
		"issuerURL: https://a?b\nclientID: x": "issuerURL", "issuerURL: https://u:p@a\nclientID: x": "issuerURL",
		"issuerURL: https://issuer.invalid": "clientID", good + "signingAlgs: [HS256]": "signingAlgs", good + "signingAlgs: [none]": "signingAlgs",
		good + "reservedNamePrefixes: ['']": "reservedNamePrefixes", good + "tokenReviewCacheTTL: 1h": "tokenReviewCacheTTL",
		good + "tokenReviewCacheTTL: -1s": "tokenReviewCacheTTL", good + "issuer: x": "issuer", "- 1": "",
	} {
		if _, err := oidc.Parse(text, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := oidc.Parse(good, []byte("x")); err == nil || !strings.Contains(err.Error(), "PEM") {
		t.Errorf("a CA that is none: %v", err)
	}
	if _, err := oidc.Parse(good, nil); err != nil {
		t.Error(err)
	}
}
