package scope

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// ownedBy answers with requests whose label is the cluster before the dot of their name.
type ownedBy struct{}

func (ownedBy) Get(_ context.Context, name string, _ metav1.GetOptions) (*certificatesv1.CertificateSigningRequest, error) {
	cluster, _, found := strings.Cut(name, ".")
	if !found {
		return nil, apierrors.NewNotFound(certificateRequests, name)
	}
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{fleet.LabelClusterName: cluster}}}, nil
}

var (
	agent  = &user.DefaultInfo{Name: fleet.ClusterUser("c1", "a"), Groups: fleet.ClusterGroups("c1")}
	aws    = &user.DefaultInfo{Name: "arn", Groups: []string{fleet.AWSClusterGroup("c1")}}
	joiner = &user.DefaultInfo{Name: "system:bootstrap:abcdef", Groups: []string{fleet.GroupBootstrap}}
	admin  = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}
)

// R10
func TestHandler(t *testing.T) {
	t.Parallel()
	const (
		label     = fleet.LabelClusterName
		csrs      = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
		watched   = "/apis/certificates.k8s.io/v1/watch/certificatesigningrequests"
		clusters  = "/apis/cluster.open-cluster-management.io/v1/managedclusters"
		own       = label + " in (c1)"
		secrets   = "/api/v1/namespaces/c1/secrets"
		elsewhere = "/api/v1/namespaces/c2/secrets"
		ofTokens  = fleet.LabelManagedServiceAccount + " in (true)"
	)
	tokens := fake.NewClientset(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "token", Labels: map[string]string{fleet.LabelManagedServiceAccount: "true"}}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "other"}}).CoreV1()
	for _, test := range []struct {
		name   string
		who    *user.DefaultInfo
		method string
		path   string
		query  url.Values
		code   int
		// selector is the label selector that arrives.
		selector string
	}{
		{name: "agent lists", who: agent, path: csrs, selector: own},
		{name: "agent through AWS lists", who: aws, path: csrs, selector: own},
		{name: "agent watches", who: agent, path: csrs, query: url.Values{"watch": {"1"}}, selector: own},
		{name: "agent watches the old way", who: agent, path: watched, selector: own},
		{name: "agent watches one the old way", who: agent, path: watched + "/c2.x", selector: own},
		{name: "agent selects by name", who: agent, path: csrs, query: url.Values{"fieldSelector": {"metadata.name=c2.x"}}, selector: own},
		{name: "agent selects its own", who: agent, path: csrs, query: url.Values{"labelSelector": {label + "=c1,a!=b"}}, selector: "a!=b," +
			label + "=c1," + own},
		{name: "agent selects another's", who: agent, path: csrs, query: url.Values{"labelSelector": {label + "=c2"}}, selector: label + "=c2," +
			own},
		{name: "agent selects twice", who: agent, path: csrs, query: url.Values{"labelSelector": {"", label + "=c2"}}, selector: own},
		{name: "agent selects nonsense", who: agent, path: csrs, query: url.Values{"labelSelector": {"a in (b"}}, code: 400},
		{name: "agent gets its own", who: agent, path: csrs + "/c1.x"},
		{name: "agent gets another's", who: agent, path: csrs + "/c2.x", code: 404},
		{name: "agent gets what is not there", who: agent, path: csrs + "/none", code: 404},
		{name: "agent creates", who: agent, method: http.MethodPost, path: csrs},
		{name: "agent lists something else", who: agent, path: "/api/v1/namespaces/c1/events"},
		{name: "agent asks for no resource", who: agent, path: "/healthz"},

		{name: "agent lists secrets", who: agent, path: secrets, selector: ofTokens},
		{name: "agent watches secrets", who: agent, path: secrets, query: url.Values{"watch": {"1"}}, selector: ofTokens},
		{name: "agent watches a secret the old way", who: agent, path: "/api/v1/watch/namespaces/c1/secrets/other", selector: ofTokens},
		{name: "agent through AWS lists secrets", who: aws, path: secrets, selector: ofTokens},
		{name: "agent lists secrets by name", who: agent, path: secrets, query: url.Values{"fieldSelector": {"metadata.name=other"}},
			selector: ofTokens},
		{name: "agent selects others", who: agent, path: secrets, query: url.Values{"labelSelector": {"!" + fleet.LabelManagedServiceAccount}},
			selector: "!" + fleet.LabelManagedServiceAccount + "," + ofTokens},
		{name: "agent gets a token", who: agent, path: secrets + "/token"},
		{name: "agent gets another secret", who: agent, path: secrets + "/other", code: 404},
		{name: "agent gets no secret", who: agent, path: secrets + "/none", code: 404},
		{name: "agent updates a secret", who: agent, method: http.MethodPut, path: secrets + "/other"},
		// RBAC has let it through: somebody gave the agent this right.
		{name: "agent lists secrets elsewhere", who: agent, path: elsewhere},
		{name: "admin gets a secret", who: admin, path: secrets + "/other"},
		{name: "admin lists secrets", who: admin, path: secrets},

		{name: "joiner lists", who: joiner, path: csrs, code: 403},
		{name: "joiner watches", who: joiner, path: watched, code: 403},
		{name: "joiner selects a cluster", who: joiner, path: csrs, query: url.Values{"labelSelector": {label + "=c1"}}, selector: label + "=c1"},
		{name: "joiner selects several clusters", who: joiner, path: csrs, query: url.Values{"labelSelector": {label + " in (c1,c2)"}},
			code: 403},
		{name: "joiner selects all clusters", who: joiner, path: csrs, query: url.Values{"labelSelector": {label}}, code: 403},
		{name: "joiner selects nonsense", who: joiner, path: csrs, query: url.Values{"labelSelector": {"a in (b"}}, code: 400},
		{name: "joiner selects by name", who: joiner, path: csrs, query: url.Values{"fieldSelector": {"metadata.name=x"}}},
		{name: "joiner gets", who: joiner, path: csrs + "/c1.x"},
		{name: "joiner lists clusters", who: joiner, path: clusters, code: 403},
		{name: "joiner watches clusters", who: joiner, path: clusters, query: url.Values{"watch": {"true"}}, code: 403},
		{name: "joiner lists labelled clusters", who: joiner, path: clusters, query: url.Values{"labelSelector": {label + "=c1"}}, code: 403},
		{name: "joiner watches a cluster", who: joiner, path: clusters,
			query: url.Values{"watch": {"true"}, "fieldSelector": {"metadata.name=c1"}}},
		{name: "joiner gets a cluster", who: joiner, path: clusters + "/c1"},
		{name: "joiner creates a cluster", who: joiner, method: http.MethodPost, path: clusters},

		{name: "admin lists", who: admin, path: csrs},
		{name: "admin gets", who: admin, path: csrs + "/c2.x"},
		{name: "admin lists clusters", who: admin, path: clusters},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			arrived, selector := false, ""
			next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				arrived, selector = true, r.URL.Query().Get("labelSelector")
			})
			received := httptest.NewRecorder()
			Handler(next, ownedBy{}, tokens, scheme.Codecs).ServeHTTP(received, authorized(t, test.who, test.method, test.path, test.query))
			if test.code != 0 {
				if received.Code != test.code || arrived {
					t.Errorf("got %d, arrived %v: %s; want %d", received.Code, arrived, received.Body, test.code)
				}
				return
			}
			if !arrived || selector != test.selector {
				t.Errorf("got %d and the selector %q, want %q: %s", received.Code, selector, test.selector, received.Body)
			}
		})
	}
}

// authorized is a request as the handlers before this one hand it on.
func authorized(t *testing.T, who user.Info, method, path string, query url.Values) *http.Request {
	t.Helper()
	if method == "" {
		method = http.MethodGet
	}
	r := httptest.NewRequestWithContext(t.Context(), method, path+"?"+query.Encode(), nil)
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := resolver.NewRequestInfo(r)
	if err != nil {
		t.Fatal(err)
	}
	return r.WithContext(request.WithUser(request.WithRequestInfo(r.Context(), info), who))
}
