package clusterproxy

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
)

// reviewed is an answer to a review, whose body has been read.
type reviewed struct {
	code   int
	header http.Header
	body   []byte
}

// post sends the agent a request as alice.
func post(t *testing.T, server *httptest.Server, path, body string) reviewed {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(access.HeaderUser, "alice")
	r.Header.Set("Content-Type", "application/json")
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reviewed{response.StatusCode, response.Header, content}
}

// CP-09: whose review is of what it may do on the cluster learns what its owner does not allow, whatever RBAC allows.
func TestReviewsKnowTheRules(t *testing.T) {
	t.Parallel()
	_, config := apiServerOf(t)
	server := start(t, config, hubAccess(map[string]string{keyRules: "- {users: [alice], verbs: [get, list], namespaces: [team]}"}))
	for spec, allowed := range map[string]bool{
		`{"resourceAttributes":{"verb":"list","namespace":"team","resource":"pods"}}`:   true,
		`{"resourceAttributes":{"verb":"delete","namespace":"team","resource":"pods"}}`: false,
		`{"resourceAttributes":{"verb":"list","namespace":"other","resource":"pods"}}`:  false,
		`{"resourceAttributes":{"verb":"list","resource":"pods"}}`:                      false,
		`{"nonResourceAttributes":{"verb":"get","path":"/apis"}}`:                       true,
		`{"nonResourceAttributes":{"verb":"get","path":"/metrics"}}`:                    false,
	} {
		for _, kind := range []string{"", `"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1",`} {
			response := post(t, server, pathAccessReview, "{"+kind+`"spec":`+spec+"}")
			answer := struct {
				authorizationv1.SelfSubjectAccessReview

				Path string // from the API server, which echoes the request
			}{}
			if err := json.Unmarshal(response.body, &answer); err != nil {
				t.Fatal(err)
			}
			refused := response.code == http.StatusCreated && answer.Status.Denied && !answer.Status.Allowed &&
				answer.Kind == "SelfSubjectAccessReview" && strings.Contains(answer.Status.Reason, fleet.ConfigMapHubAccess)
			if passed := answer.Path == pathAccessReview; passed != allowed || refused == allowed {
				t.Errorf("%s%s: %d %+v", kind, spec, response.code, answer)
			}
		}
	}
	if response := post(t, server, pathAccessReview, strings.Repeat(" ", maxReview+1)); response.code != http.StatusBadRequest {
		t.Errorf("a review that is too large: %d", response.code)
	}
	response := post(t, server, pathRulesReview, "{}")
	warning := response.header.Get("Warning")
	if response.code != http.StatusOK || !strings.Contains(warning, "no more than: get, list in team") {
		t.Errorf("a list of rights comes with %d and the warning %q", response.code, warning)
	}
}

// CP-09: whom the rules are about may read which APIs there are and who it is, so that clients work. Nobody else may.
func TestDiscoveryWithRules(t *testing.T) {
	t.Parallel()
	_, config := apiServerOf(t)
	about := start(t, config, hubAccess(map[string]string{keyRules: "- {users: [alice], verbs: [list], namespaces: [team]}"}))
	other := start(t, config, hubAccess(map[string]string{keyRules: "- {users: [bob]}"}))
	for path, want := range map[string]int{
		"/api": http.StatusOK, "/api/v1": http.StatusOK, "/apis": http.StatusOK, "/apis/apps": http.StatusOK, "/apis/apps/v1": http.StatusOK,
		"/openapi/v3/apis/apps/v1": http.StatusOK, "/version": http.StatusOK, "/healthz": http.StatusOK,
		"/api/v1/pods": http.StatusForbidden, "/apis/apps/v1/deployments": http.StatusForbidden, "/": http.StatusForbidden,
		"/metrics": http.StatusForbidden, "/healthz/etcd": http.StatusForbidden, "/api//v1": http.StatusForbidden, "//api": http.StatusForbidden,
	} {
		header := http.Header{access.HeaderUser: {"alice"}}
		if code, body := get(t, about, path, header); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
		if code, body := get(t, other, path, header); code != http.StatusForbidden {
			t.Errorf("without a rule about her, %s: %d %s", path, code, body)
		}
	}
	for _, path := range []string{pathWhoAmI, pathRulesReview} {
		body := post(t, about, path, `{"spec":{}}`).body
		if !strings.Contains(string(body), `"path":"`+path) {
			t.Errorf("%s: %s", path, body)
		}
		if response := post(t, other, path, "{}"); response.code != http.StatusForbidden {
			t.Errorf("without a rule about her, %s: %d", path, response.code)
		}
	}
	if response := post(t, about, "/apis/apps/v1", "{}"); response.code != http.StatusForbidden {
		t.Errorf("no discovery: %d", response.code)
	}
}
