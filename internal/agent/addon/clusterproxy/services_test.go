package clusterproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
)

const (
	webPath    = "/api/v1/namespaces/default/services/http:web:8080/proxy-service"
	securePath = "/api/v1/namespaces/default/services/web/proxy-service"
)

// webCluster has a service, by the name web in namespace default, at whatever port.
type webCluster struct {
	api     *rest.Config
	service *httptest.Server
	dialled []string
}

// agent serves the handler of an agent that runs in the cluster.
func (c *webCluster) agent(t *testing.T, configMap *corev1.ConfigMap) *httptest.Server {
	t.Helper()
	allowed := &rules{clock: clock.RealClock{}}
	allowed.set(configMap)
	h, err := newHandler(c.api, allowed, true)
	if err != nil {
		t.Fatal(err)
	}
	h.services.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, _, _ := net.SplitHostPort(address); host != "web.default.svc" {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Name: host, IsNotFound: true, Err: "no such host"}}
		}
		c.dialled = append(c.dialled, address)
		return (&net.Dialer{}).DialContext(ctx, network, c.service.Listener.Addr().String())
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Cleanup(h.services.transport.CloseIdleConnections)
	return server
}

func newCluster(t *testing.T, service http.HandlerFunc) *webCluster {
	t.Helper()
	_, api := apiServerOf(t)
	c := &webCluster{api: api, service: httptest.NewServer(service)}
	t.Cleanup(c.service.Close)
	return c
}

// marked has the headers of a request of alice that a hub has let through to the service of the path.
func marked(t *testing.T, path string, more http.Header) http.Header {
	t.Helper()
	service, _, err := access.ServiceOf(&url.URL{Path: path})
	if err != nil || service == nil {
		t.Fatalf("%s names no service: %v", path, err)
	}
	header := http.Header{access.HeaderUser: {"alice"}, access.HeaderGroup: {"ops"}}
	for key, values := range more {
		header[key] = values
	}
	service.Mark(header)
	return header
}

// CP-07: a service gets the request as it was written, and no credential but the one that was sent for it.
func TestService(t *testing.T) {
	t.Parallel()
	type received struct {
		Host, Path, Query string
		Header            http.Header
	}
	c := newCluster(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(received{Host: r.Host, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Header: r.Header})
	})
	agent := c.agent(t, nil)
	header := marked(t, webPath, http.Header{"Accept": {"text/html"}, "Authorization": {"Bearer of-the-hub"}, "Cookie": {"a=b"},
		"Impersonate-User": {"admin"}, "Sec-Websocket-Protocol": {"a, base64url.bearer.authorization.k8s.io.x"}})
	code, body := get(t, agent, webPath+"/a%2Fb//c?d=e%20f", header)
	var got received
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	if got.Host != "web.default.svc:8080" || got.Path != "/a%2Fb//c" || got.Query != "d=e%20f" || got.Header.Get("Accept") != "text/html" ||
		got.Header.Get("Sec-Websocket-Protocol") != "a" {
		t.Errorf("the service gets %+v", got)
	}
	for name := range got.Header {
		if name == "Authorization" || name == "Cookie" || strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-") {
			t.Errorf("the service gets %s", name)
		}
	}
	code, body = get(t, agent, webPath, marked(t, webPath, http.Header{fleet.HeaderClusterAuthorization: {"Basic for-the-service"}}))
	got = received{}
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK || got.Path != "/" ||
		got.Header.Get("Authorization") != "Basic for-the-service" || got.Header.Get(fleet.HeaderClusterAuthorization) != "" {
		t.Errorf("with a credential, the service gets %d %s", code, body)
	}
	if len(c.dialled) != 1 || c.dialled[0] != "web.default.svc:8080" {
		t.Errorf("connections are made to %q", c.dialled)
	}
}

// CP-08: what the hub has not let through to a service is a request to the API server, whatever its path.
func TestServiceWithoutMark(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(http.ResponseWriter, *http.Request) { t.Error("the service is asked") })
	code, body := get(t, c.agent(t, nil), webPath, http.Header{access.HeaderUser: {"alice"}})
	if code != http.StatusOK || !strings.Contains(body, "cluster:hub:alice") || !strings.Contains(body, webPath) {
		t.Errorf("the API server answers %d %s", code, body)
	}
	if code, body := get(t, c.agent(t, nil), securePath, marked(t, webPath, nil)); code != http.StatusBadRequest {
		t.Errorf("another service than the one that was let through answers %d %s", code, body)
	}
}

// CP-07: what a service answers bit by bit comes bit by bit, and connections are upgraded.
func TestServiceStreams(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	c := newCluster(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(w, "first\n")
			_ = http.NewResponseController(w).Flush()
			<-goOn
			_, _ = io.WriteString(w, "second\n")
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, buffered)
	})
	agent := c.agent(t, nil)
	for _, upgrade := range []string{"", "Connection: Upgrade\r\nUpgrade: echo\r\n"} {
		conn := dial(t, agent)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n%s: alice\r\nX-Remote-Service: http://web.default.svc:8080\r\n%s\r\n", webPath,
			access.HeaderUser, upgrade)
		reader := bufio.NewReader(conn)
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		lines := bufio.NewReader(response.Body)
		if upgrade == "" {
			if line, err := lines.ReadString('\n'); err != nil || line != "first\n" {
				t.Errorf("%q %v", line, err)
			}
			close(goOn)
		} else {
			lines = reader
			fmt.Fprintln(conn, "second")
		}
		if line, err := lines.ReadString('\n'); err != nil || line != "second\n" {
			t.Errorf("%q %v", line, err)
		}
	}
}

// CP-08: the rules of the cluster count for services, by namespace and by the verb of the method.
func TestServiceRules(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") })
	for text, want := range map[string]int{
		"- {verbs: [get], namespaces: [default]}": http.StatusOK, "- {verbs: [create]}": http.StatusForbidden,
		"- {namespaces: [other]}": http.StatusForbidden, "[]": http.StatusForbidden,
	} {
		agent := c.agent(t, hubAccess(map[string]string{keyRules: text}))
		if code, body := get(t, agent, webPath, marked(t, webPath, nil)); code != want {
			t.Errorf("%s: %d %s", text, code, body)
		}
	}
}

func hubAccess(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "agent", Name: fleet.ConfigMapHubAccess}, Data: data}
}

// CP-07: the certificate of a service is verified, by the CA of the cluster or one that its owner names.
func TestServiceCertificate(t *testing.T) {
	t.Parallel()
	certificate, key, err := cert.GenerateSelfSignedCertKey("web.default.svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, nil)
	c.service = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "served to ", r.Host)
	}))
	c.service.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that fail
	c.service.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	c.service.StartTLS()
	t.Cleanup(c.service.Close)
	trusting := hubAccess(map[string]string{keyRules: "[{}]", keyServiceCA: string(certificate)})
	for name, test := range map[string]struct {
		clusterCA []byte
		configMap *corev1.ConfigMap
		want      string
	}{
		"unknown":         {nil, nil, "service default/web is not trusted: "},
		"of the cluster":  {certificate, nil, "served to web.default.svc"},
		"named by owner":  {nil, trusting, "served to web.default.svc"},
		"not readable CA": {nil, hubAccess(map[string]string{keyRules: "[{}]", keyServiceCA: "x"}), "service-ca.crt is not one or more certificates"},
	} {
		own := *c
		own.api = rest.CopyConfig(c.api)
		own.api.CAData = append(own.api.CAData, test.clusterCA...)
		if code, body := get(t, own.agent(t, test.configMap), securePath, marked(t, securePath, nil)); !strings.Contains(body, test.want) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
}

// CP-07: the answer says why a service is not reached.
func TestServiceIsNotReached(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	const other = "/api/v1/namespaces/default/services/http:other/proxy-service"
	if code, body := get(t, c.agent(t, nil), other, marked(t, other, nil)); code != http.StatusBadGateway ||
		!strings.Contains(body, "the cluster has no service default/other: ") {
		t.Errorf("a service that is not there answers %d %s", code, body)
	}
	c.service.Close()
	if code, body := get(t, c.agent(t, nil), webPath, marked(t, webPath, nil)); code != http.StatusBadGateway ||
		!strings.Contains(body, "the agent does not reach service default/web: ") {
		t.Errorf("a service that is closed answers %d %s", code, body)
	}
	if code, body := get(t, start(t, c.api, nil), webPath, marked(t, webPath, nil)); code != http.StatusBadGateway ||
		!strings.Contains(body, "the agent does not run in its cluster") {
		t.Errorf("an agent outside of the cluster answers %d %s", code, body)
	}
}

// CP-07: no service has the agent connect to its own machine.
func TestRefuseLocal(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"10.96.0.10:80": true, "192.0.2.1:443": true, "[fd00::1]:80": true,
		"127.0.0.1:80": false, "[::1]:80": false, "[::ffff:127.0.0.1]:80": false, "0.0.0.0:80": false, "[::]:80": false,
		"169.254.169.254:80": false, "[fe80::1]:80": false, "[fe80::1%eth0]:80": false, "224.0.0.1:80": false, "x:80": false,
	} {
		if err := refuseLocal("tcp", address, nil); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
	s := newServices(&rest.Config{}, &rules{}, true)
	conn, err := s.dial(t.Context(), "tcp", "localhost:1")
	if err == nil {
		conn.Close()
	}
	var refused *net.OpError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "is not one that a service of a cluster has") {
		t.Errorf("a name for this machine: %v", err)
	}
}

// CP-13: services are looked up below the domain that is configured, and verified by the name that they have in any.
func TestServiceDomain(t *testing.T) {
	t.Parallel()
	s := newServices(&rest.Config{}, &rules{}, true)
	var dialled string
	s.dial = func(_ context.Context, _, address string) (net.Conn, error) {
		dialled = address
		return nil, errors.New("no network")
	}
	for _, step := range []struct{ domain, want string }{
		{"", "web.default.svc:80"}, {"cluster.local", "web.default.svc.cluster.local:80"}, {"example.com", "web.default.svc.example.com:80"},
		{"", "web.default.svc:80"},
	} {
		s.setDomain(step.domain)
		for _, connect := range []func(context.Context, string, string) (net.Conn, error){s.connect, s.dialTLS} {
			if _, err := connect(t.Context(), "tcp", "web.default.svc:80"); err == nil || dialled != step.want {
				t.Errorf("in domain %q: %s %v", step.domain, dialled, err)
			}
		}
	}
}
