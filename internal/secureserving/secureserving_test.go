package secureserving_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-io/capstan/internal/secureserving"
)

// api is an API server that reviews: it knows the tokens of "reader" and "other", of whom the first may get /metrics.
func api(t *testing.T) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch {
		case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
			review := &authenticationv1.TokenReview{}
			if err := json.NewDecoder(r.Body).Decode(review); err != nil {
				t.Error(err)
			}
			switch review.Spec.Token {
			case "reader", "other":
				review.Status.Authenticated, review.Status.User.Username = true, review.Spec.Token
				review.Status.User.Groups = []string{"group-of-" + review.Spec.Token}
				review.Status.User.Extra = map[string]authenticationv1.ExtraValue{"key": {"value"}}
			case "broken":
				http.Error(w, "no answer", http.StatusInternalServerError)
				return
			}
			answer = review
		case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
			review := &authorizationv1.SubjectAccessReview{}
			if err := json.NewDecoder(r.Body).Decode(review); err != nil {
				t.Error(err)
			}
			asked := review.Spec
			review.Status.Allowed = asked.User == "reader" && asked.Groups[0] == "group-of-reader" && asked.Extra["key"][0] == "value" &&
				*asked.NonResourceAttributes == authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
			answer = review
		default:
			t.Errorf("unexpected request for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// start serves at a free port, and returns the base URL.
func start(t *testing.T, o secureserving.Options) string {
	t.Helper()
	o.Address, o.API = "127.0.0.1:0", api(t)
	server, err := secureserving.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if server.NeedLeaderElection() {
		t.Error("replicas that do not lead do not serve")
	}
	return run(t, server)
}

// run has a server serve for as long as the test runs, and returns the base URL.
func run(t *testing.T, server *manager.Server) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return "https://" + server.Listener.Addr().String()
}

func get(t *testing.T, url, token string, config *tls.Config) (code int, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", token)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content), nil
}

func TestServer(t *testing.T) {
	t.Parallel()
	url := start(t, secureserving.Options{
		Health: map[string]healthz.Checker{"ping": healthz.Ping},
		Ready: map[string]healthz.Checker{"ping": healthz.Ping,
			"hub": func(*http.Request) error { return errors.New("no access to the hub") }},
	})
	for _, test := range []struct {
		path, token string
		code        int
		says        string
	}{
		// Kubelets have no credential.
		{"/healthz", "", 200, "ok"},
		{"/healthz/ping", "", 200, "ok"},
		{"/livez", "", 200, "ok"},
		{"/readyz", "", 500, "hub"},
		{"/readyz/ping", "", 200, "ok"},
		{"/healthz", "Bearer broken", 200, "ok"},
		{"/metrics", "", 401, "send a token"},
		{"/metrics", "Bearer ", 401, "send a token"},
		{"/metrics", "Basic reader", 401, "send a token"},
		{"/metrics", "Bearer stranger", 401, "send a token"},
		{"/metrics", "Bearer other", 403, `user "other" may not get the nonResourceURL /metrics`},
		{"/metrics", "Bearer broken", 500, "cannot be reviewed now"},
		{"/metrics", "Bearer reader", 200, "rest_client_requests_total"},
		{"/metrics", "bearer reader", 200, "rest_client_requests_total"},
		{"/debug/pprof/", "Bearer reader", 404, ""},
	} {
		code, body, err := get(t, url+test.path, test.token, &tls.Config{InsecureSkipVerify: true})
		if err != nil || code != test.code || !strings.Contains(body, test.says) {
			t.Errorf("%s with %q: %d, %v, want %d and %q; it says\n%s", test.path, test.token, code, err, test.code, test.says, body)
		}
	}
}

// healthManager is a manager that serves health for itself, and runs what is added.
type healthManager struct {
	manager.Manager
	api    *rest.Config
	ready  map[string]healthz.Checker
	server *manager.Server
}

// GetConfig implements manager.Manager.
func (m *healthManager) GetConfig() *rest.Config { return m.api }

// AddHealthzCheck implements manager.Manager.
func (m *healthManager) AddHealthzCheck(string, healthz.Checker) error { return nil }

// AddReadyzCheck implements manager.Manager.
func (m *healthManager) AddReadyzCheck(name string, check healthz.Checker) error {
	m.ready[name] = check
	return nil
}

// Add implements manager.Manager.
func (m *healthManager) Add(server manager.Runnable) error {
	m.server, _ = server.(*manager.Server)
	return nil
}

// A process is alive, and not ready, while a check says that it is not.
func TestAddHealth(t *testing.T) {
	t.Parallel()
	m := &healthManager{api: api(t), ready: map[string]healthz.Checker{}}
	err := secureserving.AddHealth(m, "127.0.0.1:0", nil, map[string]healthz.Checker{
		"grpc": func(*http.Request) error { return errors.New("it reads from the API") }})
	if err != nil {
		t.Fatal(err)
	}
	if check := m.ready["grpc"]; check == nil || check(nil) == nil || m.ready["ping"] == nil {
		t.Errorf("the manager checks %v", m.ready)
	}
	url := run(t, m.server)
	for path, want := range map[string]int{"/healthz": 200, "/livez": 200, "/readyz": 500} {
		if code, _, err := get(t, url+path, "", &tls.Config{InsecureSkipVerify: true}); err != nil || code != want {
			t.Errorf("%s: %d, %v, want %d", path, code, err, want)
		}
	}
}

// Metrics alone are for the same readers, where others than this machine can ask for them.
func TestMetricsOptions(t *testing.T) {
	t.Parallel()
	options, err := secureserving.MetricsOptions(":8080", nil)
	if err != nil {
		t.Fatal(err)
	}
	filter, err := options.FilterProvider(api(t), http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	guarded, err := filter(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]int{"": 401, "stranger": 401, "other": 403, "reader": 200} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		answer := httptest.NewRecorder()
		guarded.ServeHTTP(answer, request)
		if answer.Code != want {
			t.Errorf("%q: %d, want %d", token, answer.Code, want)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}
	health := map[string]healthz.Checker{"ping": healthz.Ping}
	if code, _, err := get(t, start(t, secureserving.Options{Health: health})+"/healthz", "", old); code != 200 {
		t.Errorf("TLS 1.2: %d, %v", code, err)
	}
	modern := func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }
	if code, _, err := get(t, start(t, secureserving.Options{Health: health, TLS: modern})+"/healthz", "", old); err == nil {
		t.Errorf("a server of TLS 1.3 answers %d to a client of TLS 1.2", code)
	}
}

func TestBusyAddress(t *testing.T) {
	t.Parallel()
	address := strings.TrimPrefix(start(t, secureserving.Options{}), "https://")
	_, err := secureserving.New(secureserving.Options{Address: address, API: &rest.Config{}})
	if err == nil || !strings.Contains(err.Error(), "--listen "+address+": ") || !strings.Contains(err.Error(), "choose another, or 0 for none") {
		t.Errorf("error %v", err)
	}
}
