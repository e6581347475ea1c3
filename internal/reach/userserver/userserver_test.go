package userserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/token"
)

// newServer says to which handler a request has come, and as what.
func newServer() http.Handler {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	return New(Options{
		Version: api.Aggregated, Codecs: serializer.NewCodecFactory(scheme), Issuers: []string{issuer},
		API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "API %s %s", strings.TrimPrefix(r.RequestURI, "/apis/reach.capstan.io/v1alpha1/managedclusters/"), r.Header.Get("Authorization"))
		}),
		Clusters: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who, _ := request.UserFrom(r.Context())
			info, _ := request.RequestInfoFrom(r.Context())
			fmt.Fprintf(w, "%s %s %s %s %s", info.Name, info.Subresource, r.URL.EscapedPath(), who.GetName(), r.Header.Get(fleet.HeaderClusterAuthorization))
		}),
		Tokens: authenticator.TokenFunc(func(_ context.Context, sent string) (*authenticator.Response, bool, error) {
			switch sent {
			case unsure, ofIssuerOrHub:
				return nil, false, errors.New("no answer")
			case doubtful, ofIssuerDoubtful:
				return nil, false, fmt.Errorf("%w: no pod", token.ErrDoubtful)
			}
			return nil, sent == ofHub || sent == ofIssuerAndHub, nil
		}),
	})
}

// Tokens of service accounts.
var (
	ofHub     = tokenOf("system:serviceaccount:hub:a")
	ofCluster = tokenOf("system:serviceaccount:cluster:a")
	unsure    = tokenOf("system:serviceaccount:hub:unsure")
	doubtful  = tokenOf("system:serviceaccount:hub:doubtful")
)

// issuer is the one whose tokens are for clusters.
const issuer = "https://issuer.invalid"

// Tokens of users that an issuer knows.
var (
	ofIssuer         = tokenBy(issuer, "alice")
	ofIssuerAndHub   = tokenBy(issuer, "on-the-hub")
	ofIssuerOrHub    = tokenBy(issuer, "unsure")
	ofIssuerDoubtful = tokenBy(issuer, "doubtful")
	ofAnother        = tokenBy("https://another.invalid", "alice")
	ofIssuerUnsigned = strings.Replace(ofIssuer, encoded(`{"alg":"RS256"}`), encoded(`{"alg":"none"}`), 1)
)

func tokenOf(subject string) string { return tokenBy("", subject) }

func tokenBy(issuer, subject string) string {
	return encoded(`{"alg":"RS256"}`) + "." + encoded(`{"iss":"`+issuer+`","sub":"`+subject+`"}`) + ".c2ln"
}

func encoded(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func get(t *testing.T, target, authorization string) (int, string) {
	t.Helper()
	header := http.Header{fleet.HeaderClusterAuthorization: {"Bearer of-somebody"}}
	if authorization != "" {
		header.Set("Authorization", authorization)
	}
	return getWith(t, target, header)
}

func getWith(t *testing.T, target string, header http.Header) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
	r.Header = header
	w := httptest.NewRecorder()
	newServer().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// CP-07 CP-09: users of the hub come through its API, and others come to the cluster with their token.
func TestWhoAsks(t *testing.T) {
	t.Parallel()
	const onCluster = "/apis/reach.capstan.io/v1alpha1/managedclusters/c1/proxy/api"
	for authorization, want := range map[string]string{
		"Bearer " + ofHub:                  "API c1/proxy/api Bearer " + ofHub,
		"Bearer " + doubtful:               "API c1/proxy/api Bearer " + doubtful,
		"bearer  " + ofHub:                 "API c1/proxy/api bearer  " + ofHub,
		"Bearer " + ofCluster:              "c1 proxy " + onCluster + " system:anonymous Bearer " + ofCluster,
		"bearer " + ofCluster + " ":        "c1 proxy " + onCluster + " system:anonymous Bearer " + ofCluster,
		"":                                 "API c1/proxy/api ",
		"Basic YTpi":                       "API c1/proxy/api Basic YTpi",
		"Bearer":                           "API c1/proxy/api Bearer",
		"Bearer opaque":                    "API c1/proxy/api Bearer opaque",
		"Bearer " + tokenOf("oidc-user"):   "API c1/proxy/api Bearer " + tokenOf("oidc-user"),
		"Basic " + ofCluster:               "API c1/proxy/api Basic " + ofCluster,
		"Bearer " + ofIssuer:               "c1 proxy " + onCluster + " system:anonymous Bearer " + ofIssuer,
		"Bearer " + ofIssuerAndHub:         "API c1/proxy/api Bearer " + ofIssuerAndHub,
		"Bearer " + ofIssuerDoubtful:       "API c1/proxy/api Bearer " + ofIssuerDoubtful,
		"Bearer " + ofAnother:              "API c1/proxy/api Bearer " + ofAnother,
		"Bearer " + ofIssuerUnsigned:       "API c1/proxy/api Bearer " + ofIssuerUnsigned,
		"Bearer " + ofCluster + ",Basic x": "API c1/proxy/api Bearer " + ofCluster + ",Basic x",
	} {
		if code, got := get(t, "/c1/api", authorization); code != http.StatusOK || got != want {
			t.Errorf("%q: %d %s", authorization, code, got)
		}
	}
	for _, sent := range []string{unsure, ofIssuerOrHub} {
		code, got := get(t, "/c1/api", "Bearer "+sent)
		if code != http.StatusServiceUnavailable || !strings.Contains(got, "cannot say whose token this is: no answer") {
			t.Errorf("while the hub does not answer: %d %s", code, got)
		}
	}
}

// CP-09: nobody is impersonated with a credential for the cluster, and the API of the hub says who is with one of the hub.
func TestWhoImpersonates(t *testing.T) {
	t.Parallel()
	const refused = "with a credential for the cluster, nobody is impersonated"
	for name, test := range map[string]struct {
		token, forCluster, says string
	}{
		"a token of the hub":               {ofHub, "", "API c1/proxy/api"},
		"a token of an issuer and the hub": {ofIssuerAndHub, "", "API c1/proxy/api"},
		"an opaque token":                  {"opaque", "", "API c1/proxy/api"},
		"a token of the cluster":           {ofCluster, "", refused},
		"a token of the issuer":            {ofIssuer, "", refused},
		"both, in two headers":             {ofHub, "Bearer " + ofCluster, refused},
		"while the hub does not answer":    {unsure, "", "cannot say whose token this is"},
	} {
		for _, key := range []string{"Impersonate-User", "impersonate-user", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes"} {
			header := http.Header{"Authorization": {"Bearer " + test.token}, key: {"limited"}}
			if test.forCluster != "" {
				header.Set(fleet.HeaderClusterAuthorization, test.forCluster)
			}
			code, got := getWith(t, "/c1/api", header)
			if !strings.Contains(got, test.says) || (code == http.StatusForbidden) != (test.says == refused) {
				t.Errorf("%s with %s: %d %s", name, key, code, got)
			}
		}
	}
}

// CP-09: a request ends with its token, whether that is of the hub or of the cluster, and wherever API servers find it.
func TestRequestsEndWithTheToken(t *testing.T) {
	t.Parallel()
	protocol := func(sent string) string {
		return "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io." + encoded(sent)
	}
	for name, test := range map[string]struct {
		subject string
		header  func(sent string) http.Header
	}{
		"of a service account": {"system:serviceaccount:hub:a", func(sent string) http.Header {
			return http.Header{"Authorization": {"Bearer " + sent}}
		}},
		"of a user": {"oidc-user", func(sent string) http.Header {
			return http.Header{"Authorization": {"Bearer " + sent}}
		}},
		"with a word behind it": {"oidc-user", func(sent string) http.Header {
			return http.Header{"Authorization": {"Bearer " + sent + " x"}}
		}},
		"in a WebSocket protocol": {"oidc-user", func(sent string) http.Header {
			return http.Header{"Sec-Websocket-Protocol": {protocol(sent)}}
		}},
		"behind a forged one": {"oidc-user", func(sent string) http.Header {
			return http.Header{"Authorization": {"Bearer opaque"}, "Sec-Websocket-Protocol": {protocol(sent)}}
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			expiry := time.Now().Add(time.Minute).Truncate(time.Second)
			sent := encoded(`{"alg":"RS256"}`) + "." + encoded(fmt.Sprintf(`{"sub":%q,"exp":%d}`, test.subject, expiry.Unix())) + ".c2ln"
			last := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			server := New(Options{Version: api.Aggregated, API: last, Clusters: last, Codecs: serializer.NewCodecFactory(runtime.NewScheme()),
				Tokens: authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) { return nil, true, nil })})
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/c1/api/v1/pods?watch=true", http.NoBody)
			r.Header = test.header(sent)
			server.ServeHTTP(httptest.NewRecorder(), r)
			if now := time.Now(); !now.Equal(expiry) {
				t.Errorf("the request with a token %s ended at %s, its token at %s", name, now, expiry)
			}
		})
	}
}

// CP-07: what comes after the name of the cluster arrives as it is written.
func TestPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/c1":                 "c1/proxy",
		"/c1/":                "c1/proxy/",
		"/c1/api/a%2Fb?c=%2F": "c1/proxy/api/a%2Fb?c=%2F",
		"/c1/c1/x":            "c1/proxy/c1/x",
		"/c1/%2e%2e/c2":       "c1/proxy/%2e%2e/c2",
		"/c1//x":              "c1/proxy//x",
	} {
		if code, got := get(t, path, "Bearer "+ofHub); code != http.StatusOK || got != "API "+want+" Bearer "+ofHub {
			t.Errorf("%s: %d %s", path, code, got)
		}
	}
	for _, path := range []string{"/", "//c1", "/%631/api", "/../c1", "/C1/api", "/c1%2Fapi"} {
		if code, got := get(t, path, "Bearer "+ofHub); code != http.StatusNotFound || !strings.Contains(got, "write it as /CLUSTER/PATH") {
			t.Errorf("%s: %d %s", path, code, got)
		}
	}
}
