package debug_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/placement/debug"
	scheduler "github.com/capstan-io/capstan/internal/placement"
	"github.com/capstan-io/capstan/internal/placement/report"
)

// explainer explains with a scheduler that knows one cluster, or fails.
type explainer struct{ err error }

func (e explainer) Explain(ctx context.Context, p *clusterv1beta1.Placement) (*scheduler.Explanation, error) {
	s := scheduler.New(scheduler.Options{})
	s.SetCluster(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "secret"}})
	return s.Explain(ctx, p), e.err
}

// testServer is an open endpoint at which all users may do what is in rights, as "VERB RESOURCE".
type testServer struct {
	debug.Endpoint
	rights  []string
	reviews atomic.Int32
}

func newTestServer(t *testing.T, e explainer, rights ...string) *testServer {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clusterv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(&clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web"}}).Build()
	s := &testServer{rights: rights}
	server := httptest.NewServer(http.HandlerFunc(s.review))
	t.Cleanup(server.Close)
	reviews, err := authorizationclient.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(api, reviews, e); err != nil {
		t.Fatal(err)
	}
	return s
}

// review answers a SubjectAccessReview.
func (s *testServer) review(w http.ResponseWriter, r *http.Request) {
	s.reviews.Add(1)
	review := &authorizationv1.SubjectAccessReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	what := review.Spec.ResourceAttributes
	review.Status.Allowed = slices.Contains(s.rights, what.Verb+" "+what.Resource)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review)
}

func (s *testServer) request(method, path, body string, caller user.Info) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if caller != nil {
		r = r.WithContext(request.WithUser(r.Context(), caller))
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

var alice = &user.DefaultInfo{Name: "alice", Groups: []string{user.AllAuthenticated}}

const unsaved = `{"apiVersion":"cluster.open-cluster-management.io/v1beta1","kind":"Placement","metadata":{"namespace":"team-a","name":"new"},"spec":{}}`

// PL-23: every error has its code, says what is wrong, and is a Status for the clients of Kubernetes.
func TestErrors(t *testing.T) {
	t.Parallel()
	all := []string{"get placements", "create placements", "list managedclusters"}
	broken := explainer{errors.New("the fleet is unreadable")}
	for name, test := range map[string]struct {
		method, path, body string
		who                user.Info
		explainer          explainer
		rights             []string
		code               int
		says               string
	}{
		"nobody": {"GET", "team-a/web", "", nil, explainer{}, all, 401, "authentication"},
		"anonymous": {"GET", "team-a/web", "", &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}},
			explainer{}, all, 401, "authentication"},
		"may not read": {"GET", "team-a/web", "", alice, explainer{}, []string{"create placements"}, 403,
			`"alice" may not get placements in namespace "team-a"`},
		"may not create":      {"POST", "", unsaved, alice, explainer{}, []string{"get placements"}, 403, `"alice" may not create placements`},
		"no such placement":   {"GET", "team-a/gone", "", alice, explainer{}, all, 404, `"gone" not found`},
		"no name":             {"GET", "", "", alice, explainer{}, all, 400, "NAMESPACE/NAME"},
		"half a name":         {"GET", "team-a", "", alice, explainer{}, all, 400, `"team-a" is not NAMESPACE/NAME`},
		"too long a path":     {"GET", "team-a/web/x", "", alice, explainer{}, all, 400, "is not NAMESPACE/NAME"},
		"another method":      {"DELETE", "team-a/web", "", alice, explainer{}, all, 405, "DELETE"},
		"post to a saved one": {"POST", "team-a/web", unsaved, alice, explainer{}, all, 405, "POST"},
		"no JSON":             {"POST", "", "spec: {}", alice, explainer{}, all, 400, "no Placement in JSON"},
		"a misspelt field": {"POST", "", strings.Replace(unsaved, `"spec":{}`, `"spec":{"predicate":[]}`, 1), alice, explainer{}, all, 400,
			`unknown field "spec.predicate"`},
		"another kind": {"POST", "", strings.Replace(unsaved, `"Placement"`, `"Secret"`, 1), alice, explainer{}, all, 400,
			"v1beta1 Secret"},
		"no namespace":         {"POST", "", `{"spec":{}}`, alice, explainer{}, all, 400, "metadata.namespace"},
		"more than a mebibyte": {"POST", "", unsaved + strings.Repeat(" ", 1<<20), alice, explainer{}, all, 400, "1048576 bytes"},
		"the hub's fault":      {"GET", "team-a/web", "", alice, broken, all, 500, "the fleet is unreadable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := newTestServer(t, test.explainer, test.rights...).request(test.method, report.Path+test.path, test.body, test.who)
			var answer struct {
				metav1.Status
				Error string `json:"error"`
			}
			if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil {
				t.Fatalf("%s: %v", got.Body, err)
			}
			if got.Code != test.code || answer.Kind != "Status" || int(answer.Code) != test.code || !strings.Contains(answer.Message, test.says) ||
				answer.Error != answer.Message {
				t.Errorf("%d %s, want %d and %q", got.Code, got.Body, test.code, test.says)
			}
			if test.code == 405 && got.Header().Get("Allow") == "" {
				t.Error("nothing says which method would be right")
			}
		})
	}
	if got := (&testServer{}).request("GET", report.Path+"team-a/web", "", alice); got.Code != http.StatusServiceUnavailable {
		t.Errorf("before it is open it answers %d", got.Code)
	}
}

// P8: the rights of a caller are cached.
func TestRightsAreCached(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, explainer{}, "get placements")
	for range 5 {
		if got := s.request("GET", report.Path+"team-a/web", "", alice); got.Code != http.StatusOK {
			t.Fatalf("%d %s", got.Code, got.Body)
		}
	}
	if got := s.reviews.Load(); got != 2 {
		t.Errorf("%d reviews for one placement and the fleet, want 2", got)
	}
	if got := s.request("GET", report.Path+"team-b/web", "", alice); got.Code != http.StatusNotFound || s.reviews.Load() != 3 {
		t.Errorf("%d, with %d reviews: another namespace is another right", got.Code, s.reviews.Load())
	}
}

// PL-23: only users who may list all clusters see those that a placement cannot select.
func TestClustersOutsideOfSetsAreHidden(t *testing.T) {
	t.Parallel()
	for rights, known := range map[string]bool{"get placements": false, "get placements,list managedclusters": true} {
		got := newTestServer(t, explainer{}, strings.Split(rights, ",")...).request("GET", report.Path+"team-a/web", "", alice)
		if got.Code != http.StatusOK || strings.Contains(got.Body.String(), "secret") != known {
			t.Errorf("with the rights %q: %d %s", rights, got.Code, got.Body)
		}
		// "the debug endpoint keeps the size of the fleet to itself"
		if strings.Contains(got.Body.String(), `"fleet":1`) != known || strings.Contains(got.Body.String(), `"fleet"`) != known {
			t.Errorf("with the rights %q the size of the fleet: %s", rights, got.Body)
		}
	}
}
