package clusterproxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy/proxytest"
	"github.com/capstan-io/capstan/internal/reach/access"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

// apiServerOf is a cluster that answers with the request, and echoes what comes through connections that are upgraded.
func apiServerOf(t *testing.T) (*httptest.Server, *rest.Config) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			_ = json.NewEncoder(w).Encode(map[string]any{"proto": r.Proto, "path": r.URL.EscapedPath(), "query": r.URL.RawQuery, "header": r.Header})
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"+r.Header.Get("Impersonate-User")+"\n")
		_, _ = io.Copy(conn, buffered)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, BearerToken: "of-the-agent", TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(server)}}
	return server, config
}

// start serves the handler as it is served at the end of a tunnel, and returns its address.
func start(t *testing.T, config *rest.Config, configMap *corev1.ConfigMap) *httptest.Server {
	t.Helper()
	allowed := &rules{clock: clock.RealClock{}}
	allowed.set(configMap)
	return startWith(t, config, allowed)
}

func startWith(t *testing.T, config *rest.Config, allowed *rules) *httptest.Server {
	t.Helper()
	h, err := newHandler(config, allowed, false)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

func get(t *testing.T, server *httptest.Server, path string, header http.Header) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// CP-09: the agent says itself that it does not reach the API server, which no API server of a cluster says of its managedclusters.
func TestServerIsNotReached(t *testing.T) {
	t.Parallel()
	cluster, config := apiServerOf(t)
	cluster.Close()
	code, body := get(t, start(t, config, nil), "/version", http.Header{access.HeaderUser: {"alice"}})
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "the agent does not reach the API server of its cluster") ||
		!strings.Contains(body, `"details":{"group":"cluster.open-cluster-management.io","kind":"managedclusters"}`) {
		t.Errorf("%d %s", code, body)
	}
}

// CP-09: a request is one of the user of the hub, under another name and with the agent's credential, or of who has a credential of the
// cluster.
func TestIdentity(t *testing.T) {
	t.Parallel()
	_, config := apiServerOf(t)
	server := start(t, config, nil)
	forwarded := func(header http.Header) (got struct {
		Proto, Path, Query string
		Header             http.Header
	}) {
		t.Helper()
		code, body := get(t, server, "/api/v1/namespaces/a%2Fb/pods?watch=true", header)
		if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
		return got
	}
	got := forwarded(http.Header{access.HeaderUser: {"alice"}, access.HeaderGroup: {"ops"}, "Impersonate-Group": {"system:masters"},
		"Authorization": {"Bearer of-somebody"}})
	if got.Proto != "HTTP/2.0" || got.Path != "/api/v1/namespaces/a%2Fb/pods" || got.Query != "watch=true" ||
		got.Header.Get("Authorization") != "Bearer of-the-agent" || got.Header.Get("Impersonate-User") != "cluster:hub:alice" ||
		strings.Join(got.Header.Values("Impersonate-Group"), " ") != "cluster:hub:ops" || got.Header.Get(access.HeaderUser) != "" {
		t.Errorf("the cluster is asked %+v", got)
	}
	got = forwarded(http.Header{access.HeaderUser: {"alice"}, fleet.HeaderClusterAuthorization: {"Bearer of-an-account"}})
	if got.Header.Get("Authorization") != "Bearer of-an-account" || got.Header.Get("Impersonate-User") != "" ||
		got.Header.Get(fleet.HeaderClusterAuthorization) != "" {
		t.Errorf("with a credential, the cluster is asked %+v", got)
	}
	nobody := http.Header{access.HeaderUser: {"system:anonymous"}, access.HeaderGroup: {"system:unauthenticated"}}
	for _, header := range []http.Header{{}, nobody} {
		if code, body := get(t, server, "/api", header); code != http.StatusUnauthorized {
			t.Errorf("nobody, as %v, gets %d %s", header, code, body)
		}
	}
	nobody.Set(fleet.HeaderClusterAuthorization, "Bearer of-an-account")
	if got = forwarded(nobody); got.Header.Get("Authorization") != "Bearer of-an-account" || got.Header.Get("Impersonate-User") != "" {
		t.Errorf("of who is known to the cluster alone, it is asked %+v", got)
	}
	if code, body := get(t, server, "/api/%2e%2e/x", http.Header{access.HeaderUser: {"alice"}}); code != http.StatusBadRequest {
		t.Errorf("a path that escapes gets %d %s", code, body)
	}
}

// CP-07: of an answer that its user does not read, the agent holds as much as the tunnel does. Its own clients, which read, may hold more.
func TestAnswersThatAreNotRead(t *testing.T) {
	t.Parallel()
	windows := make(chan uint32, 100)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{NextProtos: []string{"h2"}}
	server.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(_ *http.Server, conn *tls.Conn, _ http.Handler) { windows <- windowOf(t, conn) },
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, BearerToken: "of-the-agent", TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(server)}}
	agent := start(t, config, nil)
	expect := func(of string, is func(uint32) bool) {
		t.Helper()
		if len(windows) == 0 {
			t.Errorf("%s does not ask the API server", of)
		}
		for len(windows) > 0 {
			if got := <-windows; !is(got) {
				t.Errorf("%s holds %d bytes of an answer", of, got)
			}
		}
	}
	asTunnel := func(window uint32) bool { return window == tunnel.Window }
	get(t, agent, "/api/v1/pods", http.Header{access.HeaderUser: {"alice"}})
	expect("a request of a user of the hub", asTunnel)
	get(t, agent, "/api/v1/pods", http.Header{access.HeaderUser: {"alice"}, fleet.HeaderClusterAuthorization: {"Bearer of-an-account"}})
	expect("one with a credential of the cluster", asTunnel)
	own, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := own.Get(server.URL); err == nil {
		_ = response.Body.Close()
	}
	expect("a client of the agent", func(window uint32) bool { return window > tunnel.Window })
}

// windowOf reads how much of a response the client of an HTTP/2 connection holds. It is in the settings, which come first: 24 bytes of
// greeting, a header of 9 that begins with the length, and 6 for each, with the key and the value.
func windowOf(t *testing.T, conn net.Conn) (window uint32) {
	t.Helper()
	beginning := make([]byte, 24+9)
	if _, err := io.ReadFull(conn, beginning); err != nil {
		t.Error(err)
	}
	settings := make([]byte, binary.BigEndian.Uint16(beginning[25:]))
	if _, err := io.ReadFull(conn, settings); err != nil {
		t.Error(err)
	}
	for setting := range slices.Chunk(settings, 6) {
		const initialWindowSize = 4
		if binary.BigEndian.Uint16(setting) == initialWindowSize {
			window = binary.BigEndian.Uint32(setting[2:])
		}
	}
	return window
}

// CP-09: whatever else a request says of whom it is, in whatever writing, is left out, and nothing that it says leaves out whom it is.
func TestHeadersFromOutside(t *testing.T) {
	t.Parallel()
	_, config := apiServerOf(t)
	server := start(t, config, nil)
	for name, lines := range map[string]string{
		"once":                      "Impersonate-User: admin\r\nImpersonate-Group: system:masters",
		"in other letters":          "impersonate-user: admin\r\nIMPERSONATE-GROUP: system:masters\r\niMpErSoNaTe-UiD: 0",
		"twice":                     "Impersonate-User: admin\r\nImpersonate-User: root\r\nImpersonate-Group: a\r\nimpersonate-group: b",
		"more":                      "Impersonate-Extra-Scopes: all\r\nImpersonate-Uid: 0\r\nX-Remote-Extra-A: b\r\nX-Remote-Uid: 0",
		"credentials":               "Authorization: Bearer x\r\nProxy-Authorization: Basic x\r\nCookie: a=b",
		"left out on the way":       "Connection: Impersonate-User, Impersonate-Group, Authorization",
		"left out, more than once":  "Connection: impersonate-user\r\nConnection: keep-alive, IMPERSONATE-GROUP\r\nConnection: authorization",
		"left out, in another list": "Proxy-Connection: Impersonate-User\r\nTe: trailers, Impersonate-User\r\nTrailer: Impersonate-User",
	} {
		conn := dial(t, server)
		fmt.Fprintf(conn, "GET /api HTTP/1.1\r\nHost: x\r\n%s\r\n%s: alice\r\n%s: ops\r\n\r\n", lines, access.HeaderUser, access.HeaderGroup)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Header http.Header }
		err = json.NewDecoder(response.Body).Decode(&got)
		_ = response.Body.Close()
		for key, values := range got.Header {
			lower := strings.ToLower(key)
			if strings.HasPrefix(lower, "impersonate-") && lower != "impersonate-user" && lower != "impersonate-group" ||
				strings.HasPrefix(lower, "x-remote-") || lower == "cookie" || lower == "proxy-authorization" || len(values) != 1 {
				t.Errorf("%s: the cluster is told %s %q", name, key, values)
			}
		}
		if err != nil || got.Header.Get("Impersonate-User") != "cluster:hub:alice" || got.Header.Get("Impersonate-Group") != "cluster:hub:ops" ||
			got.Header.Get("Authorization") != "Bearer of-the-agent" {
			t.Errorf("%s: the cluster is asked %+v %v", name, got.Header, err)
		}
	}
}

// CP-09: no way to write a path leads out of what the rules allow, or to another path than the one that they decide about.
func TestPathsFromOutside(t *testing.T) {
	t.Parallel()
	_, config := apiServerOf(t)
	server := start(t, config, hubAccess(map[string]string{keyRules: "- {namespaces: [team]}"}))
	for path, want := range map[string]int{
		"/api/v1/namespaces/team/pods":                           http.StatusOK,
		"//api/v1/namespaces/other/pods":                         http.StatusForbidden,
		"/api//v1/namespaces/team/pods":                          http.StatusForbidden,
		"/api/v1//namespaces/team/pods":                          http.StatusForbidden,
		"/api/v1/namespaces//team/pods":                          http.StatusForbidden,
		"/api/v1/namespaces/team/../other/pods":                  http.StatusBadRequest,
		"/api/v1/namespaces/team/%2e%2e/other/pods":              http.StatusBadRequest,
		"/api/v1/namespaces/team/.%2E/other/pods":                http.StatusBadRequest,
		"/api/v1/namespaces/team%2f..%2fother/pods":              http.StatusBadRequest,
		"/api/v1/namespaces/team/pods/%252e%252e/%252e%252e/pod": http.StatusOK, // a name, which no pod has
		"/api/v1/namespaces/%6fther/pods":                        http.StatusForbidden,
		"/api/v1/namespaces/team%00/pods":                        http.StatusBadRequest,
		"/api/v1/namespaces/team%5c..%5cother/pods":              http.StatusBadRequest,
	} {
		conn := dial(t, server)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s: alice\r\n\r\n", path, access.HeaderUser)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != want || want == http.StatusOK && !strings.Contains(string(body), `"path":"`+path+`"`) {
			t.Errorf("%s: %s %s", path, response.Status, body)
		}
	}
}

// CP-09
func TestRulesAreAsked(t *testing.T) {
	t.Parallel()
	_, config := apiServerOf(t)
	for text, want := range map[string]int{
		"[]": http.StatusForbidden, "- {verbs: [list], namespaces: [team]}": http.StatusOK, "- {verbs: [get]}": http.StatusForbidden,
		"- {namespaces: [other]}": http.StatusForbidden, "- 1": http.StatusForbidden,
	} {
		server := start(t, config, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "agent", Name: fleet.ConfigMapHubAccess},
			Data: map[string]string{keyRules: text}})
		code, body := get(t, server, "/api/v1/namespaces/team/pods", http.Header{access.HeaderUser: {"alice"}})
		if code != want || want == http.StatusForbidden && !strings.Contains(body, fleet.ConfigMapHubAccess) {
			t.Errorf("%s: %d %s", text, code, body)
		}
	}
}

// CP-07: connections are upgraded, as those of exec, attach and port-forward are.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	_, config := apiServerOf(t)
	conn, reader := exec(t, start(t, config, nil), "alice")
	expectEcho(t, conn, reader)
}

// CP-09: whom a rule lets only read does not get a shell by the handshake of a WebSocket, which is a GET.
func TestUpgradesAreCreated(t *testing.T) {
	t.Parallel()
	_, config := apiServerOf(t)
	for text, want := range map[string]int{
		"- {verbs: [get, list, watch], namespaces: [a]}":                        http.StatusForbidden,
		"- {verbs: [create], namespaces: [a]}":                                  http.StatusForbidden,
		"[{verbs: [get], namespaces: [a]}, {verbs: [create], namespaces: [b]}]": http.StatusForbidden,
		"[{verbs: [get], namespaces: [a]}, {verbs: [create], namespaces: [a]}]": http.StatusSwitchingProtocols,
		"- {verbs: [get, create], namespaces: [a]}":                             http.StatusSwitchingProtocols,
		"- {namespaces: [a]}":                                                   http.StatusSwitchingProtocols,
	} {
		_, _, code := handshake(t, start(t, config, hubAccess(map[string]string{keyRules: text})), "alice")
		if code != want {
			t.Errorf("%s: the answer is %d, want %d", text, code, want)
		}
	}
}

// handshake requests that a connection is upgraded, as a user of the hub who executes something in a pod.
func handshake(t *testing.T, server *httptest.Server, user string) (conn net.Conn, reader *bufio.Reader, code int) {
	t.Helper()
	conn = dial(t, server)
	reader, code = handshakeOver(t, conn, user)
	return conn, reader, code
}

func handshakeOver(t *testing.T, conn net.Conn, user string) (reader *bufio.Reader, code int) {
	t.Helper()
	fmt.Fprintf(conn, "GET /api/v1/namespaces/a/pods/b/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n%s: %s\r\n\r\n",
		access.HeaderUser, user)
	reader = bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return reader, response.StatusCode
}

// exec has a connection upgraded.
func exec(t *testing.T, server *httptest.Server, user string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, reader, code := handshake(t, server, user)
	if code != http.StatusSwitchingProtocols {
		t.Fatalf("the answer is %d", code)
	}
	if line, err := reader.ReadString('\n'); err != nil || line != "cluster:hub:"+user+"\n" {
		t.Fatalf("%q %v", line, err)
	}
	return conn, reader
}

func expectEcho(t *testing.T, conn net.Conn, reader *bufio.Reader) {
	t.Helper()
	fmt.Fprintln(conn, "hello")
	if line, err := reader.ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("%q %v", line, err)
	}
}

// expectEnd waits for the end of a connection.
func expectEnd(t *testing.T, name string, reader *bufio.Reader) {
	t.Helper()
	if rest, err := io.ReadAll(reader); len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s goes on: %q, %v", name, rest, err)
	}
}

// CP-09: what is open ends when rules come that do not allow it, and what they allow goes on.
func TestRulesEndWhatIsOpen(t *testing.T) {
	t.Parallel()
	_, config := apiServerOf(t)
	allowed := &rules{clock: clock.RealClock{}}
	allowed.set(nil)
	server := startWith(t, config, allowed)
	_, ofAlice := exec(t, server, "alice")
	bob, ofBob := exec(t, server, "bob")
	allowed.set(hubAccess(map[string]string{keyRules: "- {users: [bob], verbs: [get, create], namespaces: [a]}"}))
	expectEnd(t, "what alice executes", ofAlice)
	expectEcho(t, bob, ofBob)
	allowed.set(hubAccess(map[string]string{keyRules: "- 1"}))
	expectEnd(t, "what bob executes, with rules that cannot be read,", ofBob)
}

// CP-09: who waits for an answer when rules come that do not allow the request is refused.
func TestRulesEndWhatWaits(t *testing.T) {
	t.Parallel()
	allowed := &rules{clock: clock.RealClock{}}
	h := handlerUnder(t, allowed)
	server := waiting{make(chan struct{}), make(chan struct{})}
	h.own.ordinary = server
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?watch=1", http.NoBody)
	r.Header.Set(access.HeaderUser, "alice")
	answered := answering(h, r)
	<-server.begun
	allowed.set(hubAccess(map[string]string{keyRules: "[]"}))
	<-server.ended
	w := <-answered
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), `does not let user \"alice\" of the hub do that`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if len(allowed.open) > 0 {
		t.Errorf("%d requests that are over are kept", len(allowed.open))
	}
}

// CG-01: whoever has a credential of the cluster talks to its API server through the agent, with a certificate that is verified.
func TestConnect(t *testing.T) {
	t.Parallel()
	cluster, config := apiServerOf(t)
	server := start(t, config, nil)
	for address, want := range map[string]string{apiServer: "200", "10.0.0.1:22": "403", "kubernetes.default.svc:22": "403"} {
		conn := dial(t, server)
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address)
		reader := bufio.NewReader(conn)
		status, err := reader.ReadString('\n')
		if err != nil || !strings.HasPrefix(status, "HTTP/1.1 "+want) {
			t.Errorf("%s: %q %v", address, status, err)
		}
		if want != "200" {
			continue
		}
		if _, err := reader.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		expectServer(t, conn, cluster)
	}
}

// expectServer verifies what answers at the other end of a connection.
func expectServer(t *testing.T, conn net.Conn, cluster *httptest.Server) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(cluster.Certificate())
	secure := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: "example.com"})
	if err := secure.HandshakeContext(t.Context()); err != nil {
		t.Error(err)
	}
}

// proxied is an address of the cluster that the proxy of these tests alone knows.
const proxied = "cluster.invalid:6443"

// CG-01: where the agent reaches its API server through a proxy, so does who connects to it.
func TestConnectThroughProxy(t *testing.T) {
	t.Parallel()
	cluster, config := apiServerOf(t)
	proxy := proxytest.Start(t, false, nil, map[string]string{proxied: cluster.Listener.Addr().String()})
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.Host, config.Proxy = "https://"+proxied, http.ProxyURL(at)
	expectConnection(t, config, cluster)
}

// CG-01: that proxy may be the one of the environment, which a process reads once: this is about another process.
func TestConnectThroughProxyOfEnvironment(t *testing.T) {
	const inChild = "CAPSTAN_TEST_PROXY_OF_ENVIRONMENT"
	if os.Getenv(inChild) == "" {
		child := osexec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		child.Env = append(os.Environ(), inChild+"=1")
		if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	cluster, config := apiServerOf(t)
	proxy := proxytest.Start(t, false, nil, map[string]string{proxied: cluster.Listener.Addr().String()})
	t.Setenv("HTTPS_PROXY", proxy.URL)
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
	config.Host = "https://" + proxied
	expectConnection(t, config, cluster)
}

// expectConnection connects to the API server of a cluster through the agent, and verifies that it is that.
func expectConnection(t *testing.T, config *rest.Config, cluster *httptest.Server) {
	t.Helper()
	conn := dial(t, start(t, config, nil))
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", apiServer, apiServer)
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		t.Fatalf("%s %s", response.Status, body)
	}
	expectServer(t, conn, cluster)
}

// CG-01: with rules that let nobody in, or cannot be read, nobody is connected, and who is already is not any longer. Narrower rules are
// about users of the hub, and not about who has a credential of the cluster.
func TestRulesOfConnections(t *testing.T) {
	t.Parallel()
	_, config := apiServerOf(t)
	allowed := &rules{clock: clock.RealClock{}}
	server := startWith(t, config, allowed)
	connect := func() (*bufio.Reader, int, string) {
		conn := dial(t, server)
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", apiServer, apiServer)
		reader := bufio.NewReader(conn)
		response, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode == http.StatusOK {
			return reader, http.StatusOK, ""
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return nil, response.StatusCode, string(body)
	}
	refused := func(name, want string) {
		t.Helper()
		if _, code, body := connect(); code != http.StatusForbidden || !strings.Contains(body, want) {
			t.Errorf("with rules that %s: %d %s", name, code, body)
		}
	}
	refused("are not known", "does not know yet")
	for text, want := range map[string]string{"[]": "the managed cluster lets nobody in: rules.yaml of its ConfigMap hub-access has no rule",
		"- 1": "ConfigMap agent/hub-access has no rules that can be read"} {
		allowed.set(hubAccess(map[string]string{keyRules: "- {users: [alice], verbs: [get]}"}))
		open, code, body := connect()
		if code != http.StatusOK {
			t.Fatalf("with rules that let alice in: %d %s", code, body)
		}
		allowed.set(hubAccess(map[string]string{keyRules: text}))
		expectEnd(t, "a connection, with the rules "+text+",", open)
		refused("are "+text, want)
	}
}

func dial(t *testing.T, server *httptest.Server) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func pemOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}
