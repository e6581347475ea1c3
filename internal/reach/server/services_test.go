package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
)

const inDefault = "c1/proxy/api/v1/namespaces/default/services/"

// expose has the hub read a list, and returns what events it has recorded about it.
func expose(t *testing.T, s *Server, data map[string]string) string {
	t.Helper()
	recorder := events.NewFakeRecorder(1)
	s.exposed.recorder = recorder
	s.exposed.read(t.Context(), &corev1.ConfigMap{Data: data,
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceAddOn, Name: fleet.ConfigMapExposedServices}})
	select {
	case event := <-recorder.Events:
		return event
	default:
		return ""
	}
}

func expect(t *testing.T, hub *httptest.Server, path string, wantCode int, want string) {
	t.Helper()
	if code, body := get(t, hub, path); code != wantCode || !strings.Contains(body, want) {
		t.Errorf("%s: %d %s", path, code, body)
	}
}

// CP-07, CP-08: a request for a service comes to the agent of its cluster with the mark of the hub, if the hub exposes the service.
func TestExposedService(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	connectAgent(t, s, hub, "c1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		service, path, err := access.MarkedService(r)
		if err != nil || service == nil {
			fmt.Fprint(w, "the API server ", r.URL.RequestURI(), " ", err)
			return
		}
		who, _ := access.Read(r.Header)
		fmt.Fprint(w, service.URL(), " ", path, " ", r.URL.RawQuery, " ", who.Name)
	}))
	expect(t, hub, inDefault+"http:web:8080/proxy-service/", http.StatusServiceUnavailable, "does not know yet which services it exposes")
	s.exposed.current.Store(&access.Exposed{})
	expect(t, hub, inDefault+"http:web:8080/proxy-service/", http.StatusForbidden,
		"service default/web is not in the exposed services allowlist; ConfigMap open-cluster-management-addon/cluster-proxy-exposed-services "+
			"of the hub does not list it with protocol http and port 8080")

	if event := expose(t, s, map[string]string{"a": "- {namespace: default, service: web, port: 8080}",
		"b": "- {namespace: default, service: db, protocol: https}"}); event != "" {
		t.Error(event)
	}
	expect(t, hub, inDefault+"http:web:8080/proxy-service/a%2Fb?c=d", http.StatusOK, "http://web.default.svc:8080 /a%2Fb c=d alice")
	expect(t, hub, inDefault+"db/proxy-service", http.StatusOK, "https://db.default.svc /  alice")
	for _, other := range []string{"http:web:8081/proxy-service/", "http:web/proxy-service", "http:db/proxy-service", "webs:8080/proxy-service/"} {
		expect(t, hub, inDefault+other, http.StatusForbidden, "is not in the exposed services allowlist")
	}
	for _, odd := range []string{"ftp:web:8080/proxy-service", "web:named/proxy-service", "http%3Aweb:8080/proxy-service", "web:8080%2Fproxy-service/",
		"web:8080/proxy-service/../../db/proxy-service", "web:8080/proxy-service/%2e%2e/x", "x@web:8080/proxy-service"} {
		expect(t, hub, inDefault+odd, http.StatusBadRequest, "")
	}
	expect(t, hub, inDefault+"web:8080/proxy/", http.StatusOK, "the API server /api/v1/namespaces/default/services/web:8080/proxy/ <nil>")
}

// CP-08: a list that cannot be read leaves the one from before, and an event says what is wrong.
func TestExposedListThatIsWrong(t *testing.T) {
	t.Parallel()
	s := New(testOptions)
	web := &access.Service{Protocol: access.HTTPS, Namespace: "default", Name: "web", Port: 443}
	event := expose(t, s, map[string]string{"web": "- {namespace: default, service: web, ports: 1}"})
	if !strings.Contains(event, "Warning ExposedServicesInvalid") || !strings.Contains(event, "key web: ") || !strings.Contains(event, `unknown field "ports"`) {
		t.Errorf("the event is %q", event)
	}
	if err := s.exposed.check(web); err == nil || !strings.Contains(err.Error(), "is not in the exposed services allowlist") {
		t.Errorf("the first list cannot be read: %v", err)
	}
	if event = expose(t, s, map[string]string{"web": "- {namespace: default, service: web}"}); event != "" {
		t.Error(event)
	}
	event = expose(t, s, map[string]string{"other": "- {namespace: default, service: db}", "web": "- 1", "more": "x: ["})
	if !strings.Contains(event, "key web: ") || !strings.Contains(event, "key more: ") {
		t.Errorf("the event is %q", event)
	}
	if err := s.exposed.check(web); err != nil {
		t.Errorf("the list from before does not count: %v", err)
	}
	if err := s.exposed.check(&access.Service{Protocol: access.HTTPS, Namespace: "default", Name: "db", Port: 443}); err == nil {
		t.Error("a part of a list counts of which another part cannot be read")
	}
}

// CP-08: headers by which hubs speak to agents do not come from outside.
func TestMarkFromOutside(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	s.exposed.current.Store(&access.Exposed{})
	connectAgent(t, s, hub, "c1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(r.Header)
	}))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, hub.URL+clusterPath+"c1/proxy/api/v1/pods", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"X-Remote-Service": {"http://web.default.svc"}, "x-remote-service": {"http://web.default.svc"},
		"Authorization": {"Bearer of-the-hub"}, "Cookie": {"a=b"}, "Capstan-Cluster-Authorization": {"Bearer for-the-cluster"}}
	response, err := (&http.Client{Transport: from("alice")}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got := http.Header{}
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Get("X-Remote-Service") != "" || got.Get("Authorization") != "" || got.Get("Cookie") != "" ||
		got.Get("Capstan-Cluster-Authorization") != "Bearer for-the-cluster" {
		t.Errorf("the agent gets %v", got)
	}
}

// CP-07 CP-09: who is not known to the hub reaches no services.
func TestServicesAreForUsersOfTheHub(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	s.exposed.current.Store(&access.Exposed{{Namespace: "default", Service: "web"}})
	connectAgent(t, s, hub, "c1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := access.Read(r.Header)
		fmt.Fprint(w, who.Name, " ", err)
	}))
	for path, want := range map[string]int{inDefault + "web/proxy-service": http.StatusUnauthorized, "c1/proxy/version": http.StatusOK} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, hub.URL+clusterPath+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&http.Client{Transport: from("system:anonymous")}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
}

// HC-08: a hub that lets requests for services through alone refuses all others, and connections to the API servers of clusters.
func TestServicesOnly(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	s.servicesOnly = true
	s.exposed.current.Store(&access.Exposed{{Namespace: "default", Service: "web"}})
	connectAgent(t, s, hub, "c1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		service, _, err := access.MarkedService(r)
		fmt.Fprint(w, service.Key(), " ", err)
	}))
	expect(t, hub, inDefault+"web/proxy-service", http.StatusOK, "default/web <nil>")
	expect(t, hub, inDefault+"db/proxy-service", http.StatusForbidden, "is not in the exposed services allowlist")
	for _, path := range []string{"c1/proxy", "c1/proxy/version", inDefault + "web/proxy/", inDefault + "web"} {
		expect(t, hub, path, http.StatusForbidden, "--enable-kube-api-proxy=false")
		expect(t, hub, path, http.StatusForbidden, `"kind":"managedclusters"`)
	}
	code, body := ask(t, hub, http.MethodPost, "managedclusters/c1/portforward?address=kubernetes.default.svc:443")
	if code != http.StatusForbidden || !strings.Contains(body, "--enable-kube-api-proxy=false") {
		t.Errorf("a port: %d %s", code, body)
	}
}

// CP-07: the API server of a cluster sends clients nowhere but to itself, and sets no cookies of the hub.
func TestAnswerOfCluster(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	connectAgent(t, s, hub, "c1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(http.StatusMovedPermanently)
	}))
	client := &http.Client{Transport: from("alice"), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	request := func(path, to, prefix string) (int, http.Header) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, hub.URL+clusterPath+"c1/proxy"+path+"?to="+to, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Prefix", prefix)
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode, answer.Header
	}
	if _, header := request("/api", "/api/v1", "/c1"); header.Get("Location") != "/c1/api/v1" {
		t.Errorf("who has asked by another path: %v", header)
	}
	for path, want := range map[string]string{"": "/c1/c2/api", "/": "/c1/c2/api", "/api": "/c1/c2/api", "/api/": "/c1/api/c2/api"} {
		if _, header := request(path, "c2/api", "/c1"); header.Get("Location") != want {
			t.Errorf("from %q: %v", path, header)
		}
	}
	for to, want := range map[string]string{"/api/v1": clusterPath + "c1/proxy/api/v1", "portforward": clusterPath + "c1/proxy/portforward",
		"../../c2/proxy": "", "https://example.com": ""} {
		code, header := request("/api", to, "")
		if got := header.Get("Location"); got != want || (want == "") != (code == http.StatusBadGateway) || header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %v", to, code, header)
		}
	}
}

// CP-07: a service sends clients nowhere but to itself, where the hub has it, and does not speak for the hub.
func TestAnswerOfService(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	s.exposed.current.Store(&access.Exposed{{Namespace: "default", Service: "web"}})
	connectAgent(t, s, hub, "c1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.Header().Set("Set-Cookie", "a=b")
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
			return
		}
		w.WriteHeader(http.StatusTemporaryRedirect)
	}))
	const prefix = clusterPath + "c1/proxy/api/v1/namespaces/default/services/"
	client := &http.Client{Transport: from("alice"), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for to, want := range map[string]string{
		"/login%3Fa=b":                       prefix + "http:web:8080/proxy-service/login?a=b",
		"/a%252Fb":                           prefix + "http:web:8080/proxy-service/a%2Fb",
		"c":                                  prefix + "http:web:8080/proxy-service/a/c",
		"../../../../../../../api":           prefix + "http:web:8080/proxy-service/api",
		"http://web.default.svc:8080/":       prefix + "http:web:8080/proxy-service/",
		"https://web.default.svc/x":          prefix + "https:web:443/proxy-service/x",
		"http://web.default.svc:9090":        prefix + "http:web:9090/proxy-service",
		"https://example.com/":               "",
		"//example.com/":                     "",
		"https://a:b@web.default.svc/":       "",
		"http://other.default.svc:8080/":     "",
		"javascript:x":                       "",
		`/\example.com`:                      "",
		"/%252e%252e/%252e%252e/%252e%252e/": "",
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, hub.URL+prefix+"http:web:8080/proxy-service/a/b?to="+to, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		wantCode := http.StatusTemporaryRedirect
		if want == "" {
			wantCode = http.StatusBadGateway
		}
		r.Method = http.MethodPost
		created, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		created.Body.Close()
		if got := created.Header.Get("Location"); created.StatusCode != http.StatusCreated || got != want {
			t.Errorf("%s is where something was created: %d %q", to, created.StatusCode, got)
		}
		if got := response.Header.Get("Location"); response.StatusCode != wantCode || got != want || response.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %q %v", to, response.StatusCode, got, response.Header)
		}
	}
}
