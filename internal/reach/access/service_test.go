package access_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/reach/access"
)

const inDefault = "/api/v1/namespaces/default/services/"

func parse(t *testing.T, path string) *url.URL {
	t.Helper()
	u, err := url.Parse(path)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// CP-07: a path names a service, with https unless it says otherwise, and what follows stays as it is written.
func TestServiceOf(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][2]string{
		inDefault + "web/proxy-service":                        {"https://web.default.svc", "/"},
		inDefault + "web/proxy-service/":                       {"https://web.default.svc", "/"},
		inDefault + "web:8443/proxy-service/a/b?c=d":           {"https://web.default.svc:8443", "/a/b"},
		inDefault + "http:web/proxy-service/a%2Fb//c/":         {"http://web.default.svc", "/a%2Fb//c/"},
		inDefault + "http:web:/proxy-service/":                 {"http://web.default.svc", "/"},
		inDefault + "http:web:8080/proxy-service/a":            {"http://web.default.svc:8080", "/a"},
		inDefault + "https:web:443/proxy-service/proxy":        {"https://web.default.svc", "/proxy"},
		inDefault + "http:8080/proxy-service":                  {"https://http.default.svc:8080", "/"},
		"/api/v1/namespaces/default/services/web/proxy/a":      {"", ""},
		"/api/v1/namespaces/default/pods/web/proxy-service/a":  {"", ""},
		"/apis/v1/namespaces/default/services/a/proxy-service": {"", ""},
		"//api/v1/namespaces/a/services/web/proxy-service":     {"", ""},
		inDefault + "web/proxy-services":                       {"", ""},
		inDefault + "web":                                      {"", ""},
		"/":                                                    {"", ""},
	} {
		service, rest, err := access.ServiceOf(parse(t, path))
		got := ""
		if service != nil {
			got = service.URL().String()
		}
		if err != nil || got != want[0] || rest != want[1] {
			t.Errorf("%s is path %q of %q, %v", path, rest, got, err)
		}
	}
}

// CP-08: what names a service in any other way is refused, and not read as something else.
func TestServiceOfRefuses(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		inDefault + "web:metrics/proxy-service/":              `port "metrics" is no number`,
		inDefault + "web:0/proxy-service/":                    `port "0"`,
		inDefault + "web:65536/proxy-service/":                `port "65536"`,
		inDefault + "web:-1/proxy-service/":                   `port "-1"`,
		inDefault + "ftp:web:21/proxy-service/":               `the protocol "ftp"; use http or https`,
		inDefault + "HTTP:web:80/proxy-service/":              `the protocol "HTTP"`,
		inDefault + "http:web:80:90/proxy-service/":           "write it as [PROTOCOL:]NAME[:PORT]",
		inDefault + "/proxy-service/":                         `service ""`,
		inDefault + "http::80/proxy-service/":                 `service ""`,
		inDefault + "Web/proxy-service/":                      `service "Web"`,
		inDefault + "web.other/proxy-service/":                `service "web.other"`,
		inDefault + "user@web/proxy-service/":                 `service "user@web"`,
		inDefault + "../proxy-service/":                       `service ".."`,
		inDefault + "w%65b/proxy-service/":                    "without any",
		inDefault + "http%3Aweb/proxy-service/":               "without any",
		inDefault + "web/proxy%2Dservice/":                    "without any",
		inDefault + "web%2Fproxy-service/":                    "without any",
		inDefault + "web/proxy-service%2F":                    "without any",
		"/api/v1/namespaces/a.b/services/web/proxy-service":   `namespace "a.b"`,
		"/api/v1/namespaces//services/web/proxy-service":      `namespace ""`,
		"/api/v1/%6eamespaces/a/services/web/proxy-service/a": "without any",
	} {
		if service, _, err := access.ServiceOf(parse(t, path)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is for %+v: %v", path, service, err)
		}
	}
}

// CP-08: only the hub says that a request is for a service, and the agent hands it to no other.
func TestMarkedService(t *testing.T) {
	t.Parallel()
	service, _, err := access.ServiceOf(parse(t, inDefault+"http:web/proxy-service/"))
	if err != nil {
		t.Fatal(err)
	}
	mark := http.Header{}
	service.Mark(mark)
	for path, want := range map[string]string{
		inDefault + "http:web/proxy-service/a":    "",
		inDefault + "http:web:80/proxy-service/a": "",
		inDefault + "http:web:81/proxy-service/a": "the hub has let a request through to http://web.default.svc",
		"/api/v1/pods":                           "the hub has let a request through to http://web.default.svc",
		inDefault + "http:web:x/proxy-service/a": `port "x"`,
	} {
		got, _, err := access.MarkedService(&http.Request{URL: parse(t, path), Header: mark})
		if want == "" && (err != nil || got == nil || *got != *service) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s is for %+v: %v", path, got, err)
		}
	}
	access.Strip(mark)
	request := &http.Request{URL: parse(t, inDefault+"http:web/proxy-service/"), Header: mark}
	if got, _, err := access.MarkedService(request); got != nil || err != nil {
		t.Errorf("a mark from outside counts: %+v, %v", got, err)
	}
}

// CP-08
func TestExposed(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]bool{
		"":                                     false,
		"[]":                                   false,
		"- {namespace: default, service: web}": true,
		"- {namespace: default, service: web, port: 8080, protocol: http}":             true,
		`- {namespace: default, service: web, port: "8080"}`:                           true,
		"- {namespace: default, service: web, port: 80}":                               false,
		"- {namespace: default, service: web, protocol: https}":                        false,
		"- {namespace: other, service: web}":                                           false,
		"- {namespace: default, service: webs}":                                        false,
		"- {namespace: other, service: web}\n- {namespace: default, service: web}":     true,
		"- {namespace: default, service: web, port: 80}\n- {namespace: a, service: b}": false,
	} {
		exposed, err := access.ParseExposed(list)
		if err != nil {
			t.Errorf("%s: %v", list, err)
		}
		if got := exposed.Allow(&access.Service{Protocol: access.HTTP, Namespace: "default", Name: "web", Port: 8080}); got != want {
			t.Errorf("%s exposes the service: %t", list, got)
		}
	}
}

// CP-08
func TestExposedRefuses(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"namespace: default":                "cannot unmarshal object",
		"- web":                             "cannot unmarshal string",
		"- {namespace: default, name: web}": `unknown field "name"`,
		"- {namespace: a, service: b}\n- {namespace: default}": `entry 2: namespace is "default" and service is ""`,
		"- {service: web}":                                    "both have to be set",
		"- {namespace: '*', service: web}":                    `namespace "*"`,
		"- {namespace: default, service: '*'}":                `service "*"`,
		"- {namespace: default, service: web, port: web}":     `port "web" is no number`,
		"- {namespace: default, service: web, port: 0}":       `port "0"`,
		"- {namespace: default, service: web, port: 1.5}":     "cannot unmarshal",
		"- {namespace: default, service: web, protocol: TCP}": `protocol is "TCP"`,
		"- {namespace: a, service: b, service: c}":            "already set",
		"- {namespace: a":                                     "yaml",
	} {
		if exposed, err := access.ParseExposed(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", list, exposed, err)
		}
	}
}
