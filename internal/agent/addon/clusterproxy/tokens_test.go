package clusterproxy

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/agent/addon/clusterproxy/oidc"
	"github.com/capstan-io/capstan/internal/agent/addon/clusterproxy/oidc/oidctest"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
)

// reviewing is a cluster that knows one token, and answers other requests with the request.
func reviewing(t *testing.T, knows string) (config *rest.Config, reviews *atomic.Int32) {
	t.Helper()
	reviews = &atomic.Int32{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			_ = json.NewEncoder(w).Encode(r.Header)
			return
		}
		reviews.Add(1)
		review := &authenticationv1.TokenReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			t.Error(err)
		}
		if review.Status.Authenticated = review.Spec.Token == knows; !review.Status.Authenticated {
			review.Status.Error = "oidc: expected another audience"
		}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, BearerToken: "of-the-agent", ContentConfig: rest.ContentConfig{ContentType: "application/json"},
		TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(server)}}, reviews
}

// CP-09: a token is one of the cluster, or else one of the OIDC issuer whose users it knows by other names; headers of the client say
// nothing.
func TestOIDCToken(t *testing.T) {
	t.Parallel()
	issuer := oidctest.Start(t)
	ofIssuer := issuer.Token(t, issuer.Claims("alice", map[string]any{"groups": []string{"ops"}}))
	ofBoth := issuer.Token(t, issuer.Claims("bob", nil))
	config, reviews := reviewing(t, ofBoth)
	server := start(t, config, hubAccess(map[string]string{keyRules: "[{}]", keyOIDC: issuer.Config("groupsClaim: groups\ngroupsPrefix: 'oidc:'"),
		keyOIDCCA: string(issuer.CA())}))
	forwarded := func(credential string) (int, http.Header, string) {
		t.Helper()
		code, body := get(t, server, "/api/v1/pods", http.Header{access.HeaderUser: {"system:anonymous"},
			fleet.HeaderClusterAuthorization: {credential},
			"Impersonate-User":               {"admin"}, "Impersonate-Group": {"system:masters"}, "Impersonate-Extra-Scopes": {"all"}})
		var header http.Header
		_ = json.Unmarshal([]byte(body), &header)
		return code, header, body
	}
	for range 3 {
		if code, got, _ := forwarded("bearer " + ofIssuer + " x"); code != http.StatusOK || got.Get("Authorization") != "Bearer of-the-agent" ||
			got.Get("Impersonate-User") != issuer.URL+"#alice" || strings.Join(got.Values("Impersonate-Group"), " ") != "oidc:ops" ||
			got.Get("Impersonate-Extra-Scopes") != "" || got.Get(fleet.HeaderClusterAuthorization) != "" {
			t.Errorf("for alice, the cluster is asked %d %+v", code, got)
		}
	}
	if n := reviews.Load(); n != 1 {
		t.Errorf("the cluster is asked %d times whose token it is", n)
	}
	for name, credential := range map[string]string{
		"known to the cluster": "Bearer " + ofBoth, "of nobody": "Bearer x.y.z", "basic": "Basic " + ofIssuer,
		"none to API servers": "Bearer  " + ofIssuer} {
		code, got, _ := forwarded(credential)
		if code != http.StatusOK || got.Get("Authorization") != credential || got.Get("Impersonate-User") != "" {
			t.Errorf("with a token that is %s, the cluster is asked %d %+v", name, code, got)
		}
	}
	for name, test := range map[string]struct{ token, want string }{
		"for another client": {issuer.Token(t, issuer.Claims("alice", map[string]any{"aud": "x"})), "expected audience"},
		"expired":            {issuer.Token(t, issuer.Claims("alice", map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})), "expired"},
		"unsigned":           {oidctest.Unsigned(t, issuer.Claims("alice", nil)), "algorithm"},
		"huge":               {issuer.Token(t, issuer.Claims("alice", map[string]any{"x": strings.Repeat("x", oidc.MaxToken)})), "the limit is"},
	} {
		if code, _, body := forwarded("Bearer " + test.token); code != http.StatusUnauthorized || !strings.Contains(body, test.want) {
			t.Errorf("%s: %d %s, want %q", name, code, body, test.want)
		}
	}
}

// CP-09: what is open with a token of an issuer ends when the cluster does not trust that any more.
func TestOIDCIssuerIsTakenBack(t *testing.T) {
	t.Parallel()
	issuer := oidctest.Start(t)
	config, _ := reviewing(t, "")
	allowed := &rules{clock: clock.RealClock{}}
	allowed.set(hubAccess(map[string]string{keyRules: "[{}]", keyOIDC: issuer.Config(""), keyOIDCCA: string(issuer.CA())}))
	h, err := newHandler(config, allowed, false)
	if err != nil {
		t.Fatal(err)
	}
	server := waiting{make(chan struct{}), make(chan struct{})}
	h.own.ordinary = server
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?watch=1", http.NoBody)
	r.Header.Set(access.HeaderUser, "alice")
	r.Header.Set(fleet.HeaderClusterAuthorization, "Bearer "+issuer.Token(t, issuer.Claims("alice", nil)))
	answered := answering(h, r)
	select {
	case <-server.begun:
	case w := <-answered:
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	allowed.set(hubAccess(map[string]string{keyRules: "[{}]"}))
	if w := <-answered; w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "does not trust the issuer any more") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// CP-09: an API server that cannot be asked whose a token is may be one that the agent does not reach; one that refuses is reached.
func TestServerDoesNotReviewTokens(t *testing.T) {
	t.Parallel()
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		reviews := authenticationv1.SchemeGroupVersion.WithResource("tokenreviews").GroupResource()
		refusal := apierrors.NewForbidden(reviews, "", errors.New("no right")).Status()
		w.WriteHeader(int(refusal.Code))
		_ = json.NewEncoder(w).Encode(refusal)
	}
	for name, test := range map[string]struct {
		away      bool
		unreached bool
	}{
		"it does not answer": {true, true},
		"it refuses":         {false, false},
	} {
		issuer := oidctest.Start(t)
		cluster := httptest.NewTLSServer(http.HandlerFunc(refuse))
		t.Cleanup(cluster.Close)
		config := &rest.Config{Host: cluster.URL, TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(cluster)}}
		if test.away {
			cluster.Close()
		}
		server := start(t, config, hubAccess(map[string]string{keyRules: "[{}]", keyOIDC: issuer.Config(""), keyOIDCCA: string(issuer.CA())}))
		code, body := get(t, server, "/version", http.Header{access.HeaderUser: {"alice"},
			fleet.HeaderClusterAuthorization: {"Bearer " + issuer.Token(t, issuer.Claims("alice", nil))}})
		marked := strings.Contains(body, `"details":{"group":"cluster.open-cluster-management.io","kind":"managedclusters"}`)
		if code != http.StatusServiceUnavailable || !strings.Contains(body, "cannot ask the API server of its cluster whose token this is") ||
			marked != test.unreached {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
}

// CP-09: an issuer that does not answer has its tokens wait for it, and nobody else.
func TestOIDCIssuerIsAway(t *testing.T) {
	t.Parallel()
	issuer := oidctest.Start(t)
	issuer.SetDown(true)
	config, _ := reviewing(t, "")
	server := start(t, config, hubAccess(map[string]string{keyRules: "[{}]", keyOIDC: issuer.Config(""), keyOIDCCA: string(issuer.CA())}))
	token := "Bearer " + issuer.Token(t, issuer.Claims("alice", nil))
	if code, body := get(t, server, "/api", http.Header{access.HeaderUser: {"alice"}, fleet.HeaderClusterAuthorization: {token}}); code !=
		http.StatusServiceUnavailable || !strings.Contains(body, "does not answer") {
		t.Errorf("%d %s", code, body)
	}
	for _, header := range []http.Header{{access.HeaderUser: {"alice"}},
		{access.HeaderUser: {"alice"}, fleet.HeaderClusterAuthorization: {"Bearer of-an-account"}}} {
		if code, body := get(t, server, "/api", header); code != http.StatusOK {
			t.Errorf("another request gets %d %s", code, body)
		}
	}
}

// CP-09: an issuer that cannot be meant lets nobody in, and one that is the same keeps what it knows.
func TestOIDCConfig(t *testing.T) {
	t.Parallel()
	issuer := oidctest.Start(t)
	r := &rules{}
	good := map[string]string{keyRules: "[{}]", keyOIDC: issuer.Config(""), keyOIDCCA: string(issuer.CA())}
	r.set(hubAccess(good))
	first := r.issuer()
	r.set(hubAccess(good))
	if first == nil || r.issuer() != first {
		t.Error("the same issuer is another one")
	}
	r.set(hubAccess(map[string]string{keyRules: "[{}]", keyOIDC: issuer.Config("signingAlgs: [none]")}))
	if err := r.problem(); err == nil || !strings.Contains(err.Error(), "oidc.yaml: signingAlgs") || r.issuer() != nil {
		t.Errorf("the problem is %v", err)
	}
	r.set(nil)
	if r.issuer() != nil || r.problem() != nil {
		t.Error("without a ConfigMap there is an issuer")
	}
}
