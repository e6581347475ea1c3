package gateway_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/internal/reach/gateway"
	"github.com/capstan-io/capstan/internal/reach/gateway/identity"
	"github.com/capstan-io/capstan/internal/reach/lasting"
)

// seen is what a cluster gets to see.
type seen struct {
	Method, Path, Query, Body string
	Header                    http.Header
}

// echo answers with what it sees.
func echo(w http.ResponseWriter, r *http.Request) {
	content, _ := io.ReadAll(r.Body)
	_ = json.NewEncoder(w).Encode(seen{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, string(content), r.Header})
}

func (f *fixture) seen(method, path string, header http.Header, content []byte) (s seen) {
	f.Helper()
	answer := f.do(method, path, header, content)
	text := body(f.T, answer)
	if answer.StatusCode != http.StatusOK {
		f.Fatalf("%s: %s", answer.Status, text)
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		f.Fatal(err)
	}
	return s
}

func TestProxyPassesOn(t *testing.T) { // CG-02
	t.Parallel()
	f := setUp(t, gateway.Options{}, http.HandlerFunc(echo))
	f.create(func(s *corev1.Secret) { s.Data["endpoint"] = []byte(f.cluster.URL + "/base/") })
	for _, test := range []struct{ method, path, wantPath, wantQuery string }{
		{"GET", "", "/base/", ""},
		{"GET", "/api/v1/pods?watch=true&labelSelector=a%3Db", "/base/api/v1/pods", "watch=true&labelSelector=a%3Db"},
		{"POST", "/api/v1/namespaces/a/services/b:80/proxy/x%2Fy/?a=1;b", "/base/api/v1/namespaces/a/services/b:80/proxy/x%2Fy/", "a=1;b"},
		{"PATCH", "/x%20y//z/", "/base/x%20y//z/", ""},
		{"DELETE", "/api/v1/pods/a?dryRun=All", "/base/api/v1/pods/a", "dryRun=All"},
		{"PUT", "/api/v1/pods/a?dry%52un=All&x=__dryRun", "/base/api/v1/pods/a", "dryRun=All&x=__dryRun"},
		{"POST", "/api/v1/pods?__dryRun=All&impersonate=false&c=d", "/base/api/v1/pods", "dryRun=All&c=d"},
		{"GET", "/...?", "/base/...", ""},
	} {
		got := f.seen(test.method, test.path, nil, []byte("content"))
		want := seen{Method: test.method, Path: test.wantPath, Query: test.wantQuery, Body: "content"}
		got.Header = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %s: -want +got:\n%s", test.method, test.path, diff)
		}
	}
}

func TestProxyLeavesIdentitiesOut(t *testing.T) { // CG-02
	t.Parallel()
	f := setUp(t, gateway.Options{}, http.HandlerFunc(echo))
	f.create(nil)
	got := f.seen("GET", "/api", http.Header{
		"Authorization":           {"Bearer of-caller"},
		"Cookie":                  {"session=of-caller"},
		"Impersonate-User":        {"root"},
		"impersonate-group":       {"system:masters"},
		"Impersonate-Extra-A":     {"b"},
		"Impersonate-Uid":         {"0"},
		"X-Remote-User":           {"root"},
		"X-Remote-Group":          {"system:masters"},
		"X-Remote-Extra-A":        {"b"},
		"X-Forwarded-For":         {"10.0.0.1"},
		"Sec-Websocket-Protocol":  {"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0"},
		"Connection":              {"Authorization, X-Own"},
		"X-Own":                   {"x"},
		"Accept":                  {"application/json"},
		"Kubectl-Command":         {"kubectl get"},
		"X-Stream-Protocol-Other": {"y"},
	}, nil)
	want := http.Header{
		"Authorization": {"Bearer of-gateway"}, "Accept": {"application/json"}, "Kubectl-Command": {"kubectl get"},
		"Sec-Websocket-Protocol": {"v5.channel.k8s.io"}, "X-Stream-Protocol-Other": {"y"},
		"Accept-Encoding": {"gzip"}, "User-Agent": {"Go-http-client/1.1"}, // by the client of this test
	}
	if diff := cmp.Diff(want, got.Header); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestProxyRefusesPaths(t *testing.T) { // CG-02
	t.Parallel()
	var reached atomic.Int32
	f := setUp(t, gateway.Options{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/known" && r.URL.Path != "/healthz" {
			reached.Add(1)
		}
	}))
	f.create(nil)
	for _, path := range []string{
		"/..", "/../../c2/proxy/api", "/api/../..", "/api/%2e%2e/x", "/api/..%2f..%2fx", "/api/%2E./x", "/a/.", "/a/%2e/b", `/a/..\b`, `/a%5c..%5cb`,
		"/api?impersonate=perhaps",
	} {
		// A client of this language cleans none of these.
		_, answer := f.open("GET " + prefix + path + " HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
		if text := body(t, answer); answer.StatusCode != http.StatusBadRequest || !strings.Contains(text, `"reason":"BadRequest"`) {
			t.Errorf("%s: %s %s", path, answer.Status, text)
		}
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("%d requests came to the cluster", n)
	}
}

// open sends bytes to the hub.
func (f *fixture) open(text string) (net.Conn, *http.Response) {
	f.Helper()
	conn, err := (&net.Dialer{}).DialContext(f.Context(), "tcp", f.hub.Listener.Addr().String())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		f.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		f.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		f.Fatal(err)
	}
	return conn, answer
}

func TestProxyImpersonates(t *testing.T) { // CG-02 CG-04 CG-05
	t.Parallel()
	rules, err := identity.Parse([]byte(`{"spec":{"clientIdentityExchanger":{"rules":[
		{"name":"r","type":"StaticMappingIdentityExchanger","source":{"group":"mapped"},"target":{"user":"target","groups":["g"],"uid":"9"}},
		{"name":"p","type":"PrivilegedIdentityExchanger","source":{"group":"privileged"}}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	alice := http.Header{"Impersonate-User": {"alice"}, "Impersonate-Group": {"ops"}, "Impersonate-Extra-Example.com%2ffrom": {"here"}}
	for _, test := range []struct {
		name      string
		penetrate bool
		rules     *identity.Exchanger
		own, path string
		want      http.Header
	}{
		{"not without being asked", false, rules, "", "/api", http.Header{}},
		{"when asked", false, nil, "", "/api?impersonate=true", alice},
		{"all with the gate", true, rules, "", "/api", alice},
		{"as the rules of the cluster say", true, rules,
			`{"spec":{"clientIdentityExchanger":{"rules":[{"name":"o","type":"StaticMappingIdentityExchanger","source":{"user":"alice"},` +
				`"target":{"user":"target","groups":["g"],"uid":"9"}}]}}}`,
			"/api", http.Header{"Impersonate-User": {"target"}, "Impersonate-Group": {"g"}, "Impersonate-Uid": {"9"}}},
		{"not the privileged", true, rules,
			`{"spec":{"clientIdentityExchanger":{"rules":[{"name":"o","type":"PrivilegedIdentityExchanger","source":{"user":"alice"}}]}}}`,
			"/api", http.Header{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, gateway.Options{PenetrateIdentity: test.penetrate, Rules: test.rules}, http.HandlerFunc(echo))
			f.create(func(s *corev1.Secret) {
				if test.own != "" {
					s.Annotations[gatewayv1alpha1.AnnotationProxyConfiguration] = test.own
				}
			})
			got := f.seen("GET", test.path, http.Header{"Impersonate-User": {"root"}}, nil)
			impersonated := http.Header{}
			for name, values := range got.Header {
				if strings.HasPrefix(name, "Impersonate-") {
					impersonated[name] = values
				}
			}
			if diff := cmp.Diff(test.want, impersonated); diff != "" || got.Query != "" {
				t.Errorf("query %q, -want +got:\n%s", got.Query, diff)
			}
		})
	}
}

// Who would be somebody else in the headers of a request is not impersonated.
func TestProxyRefusesIdentities(t *testing.T) { // CG-02
	t.Parallel()
	for name, test := range map[string]struct {
		caller user.DefaultInfo
		want   string
	}{
		"nobody":  {user.DefaultInfo{}, "has no name"},
		"a user":  {user.DefaultInfo{Name: "alice "}, `user \"alice \"`},
		"a group": {user.DefaultInfo{Name: "alice", Groups: []string{"ops", " admins"}}, `group \" admins\"`},
		"a UID":   {user.DefaultInfo{Name: "alice", UID: "1\t"}, "UID"},
		"extra":   {user.DefaultInfo{Name: "alice", Extra: map[string][]string{"scopes": {"a", "b\n"}}}, "extra scopes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, gateway.Options{}, http.HandlerFunc(echo))
			f.create(nil)
			f.caller = &test.caller
			answer := f.get("/api?impersonate=true")
			if text := body(t, answer); answer.StatusCode != http.StatusForbidden || !strings.Contains(text, test.want) {
				t.Errorf("%s %s, want %s", answer.Status, text, test.want)
			}
			if answer := f.get("/api"); answer.StatusCode != http.StatusOK {
				t.Error("as the account of the gateway:", answer.Status, body(t, answer))
			}
		})
	}
}

func TestAuthorizeSubpath(t *testing.T) { // CG-02
	t.Parallel()
	f := setUp(t, gateway.Options{AuthorizeSubpath: true}, http.HandlerFunc(echo))
	f.rights = func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "alice" && a.GetVerb() == "list" && a.GetResource() == "pods" && a.GetNamespace() == "a" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}
	f.create(nil)
	for path, want := range map[string]int{
		"/api/v1/namespaces/a/pods": 200, "/api/v1/namespaces/a/pods?watch=true": 403, "/api/v1/namespaces/b/pods": 403, "/api/v1/pods": 403,
		"/api/v1/namespaces/a/%70ods": 200, "/healthz": 403,
	} {
		answer := f.get(path)
		if text := body(t, answer); answer.StatusCode != want || want == 403 && !strings.Contains(text, `user \"alice\" may not`) {
			t.Errorf("%s: %s %s", path, answer.Status, text)
		}
	}
}

// What lasts ends with the right to what it is about on the cluster, if that is authorized on the hub.
func TestSubpathIsFollowed(t *testing.T) { // CG-02
	t.Parallel()
	webSocket := strings.Replace(upgrade, "POST", http.MethodGet, 1)
	for name, test := range map[string]struct {
		o    gateway.Options
		want []string
	}{
		"authorized":     {gateway.Options{AuthorizeSubpath: true}, []string{"alice get pods/exec in a", "alice create pods/exec in a"}},
		"not authorized": {gateway.Options{}, nil},
	} {
		f := setUp(t, test.o, http.HandlerFunc(upgradeEcho))
		f.rights = func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		}
		f.create(nil)
		followed := make(chan string, len(test.want)+1)
		f.within = func(ctx context.Context) context.Context {
			return lasting.WithFollower(ctx, func(a authorizer.Attributes) {
				followed <- fmt.Sprintf("%s %s %s/%s in %s", a.GetUser().GetName(), a.GetVerb(), a.GetResource(), a.GetSubresource(), a.GetNamespace())
			})
		}
		_, answer := f.open(webSocket)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s: %s", name, answer.Status)
		}
		var got []string
		for len(followed) > 0 {
			got = append(got, <-followed)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: followed are %q, want %q", name, got, test.want)
		}
	}
}

// Who may only read on the hub does not get a shell by the handshake of a WebSocket, which is a GET.
func TestAuthorizeSubpathOfUpgrade(t *testing.T) { // CG-02
	t.Parallel()
	webSocket := strings.Replace(upgrade, "POST", http.MethodGet, 1)
	for name, test := range map[string]struct {
		may  []string
		want int
	}{
		"to read":             {[]string{"get"}, http.StatusForbidden},
		"to execute":          {[]string{"create"}, http.StatusForbidden},
		"to read and execute": {[]string{"get", "create"}, http.StatusSwitchingProtocols},
	} {
		f := setUp(t, gateway.Options{AuthorizeSubpath: true}, http.HandlerFunc(upgradeEcho))
		f.rights = func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetResource() == "pods" && a.GetSubresource() == "exec" && slices.Contains(test.may, a.GetVerb()) {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		}
		f.create(nil)
		_, answer := f.open(webSocket)
		_ = answer.Body.Close()
		if answer.StatusCode != test.want {
			t.Errorf("with the right %s: %s", name, answer.Status)
		}
	}
}

// upgradeEcho answers an upgrade, and sends back what comes.
func upgradeEcho(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		return
	}
	if r.Header.Get("Authorization") != "Bearer of-gateway" || r.ProtoMajor != 1 {
		http.Error(w, "not so", http.StatusForbidden)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	_, _ = io.Copy(conn, buffered)
}

const upgrade = "POST " + prefix + "/api/v1/namespaces/a/pods/b/exec?command=sh HTTP/1.1\r\nHost: hub\r\n" +
	"Authorization: Bearer of-caller\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"

func TestProxyUpgrades(t *testing.T) { // CG-02
	t.Parallel()
	for _, way := range []string{"Const", "ClusterProxy"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			tunnel := &dialer{}
			f := setUp(t, gateway.Options{Tunnel: tunnel}, http.HandlerFunc(upgradeEcho), "kubernetes.default.svc")
			tunnel.address = f.cluster.Listener.Addr().String()
			f.create(func(s *corev1.Secret) {
				if way == "ClusterProxy" {
					throughTunnel(s)
				}
			})
			conn, answer := f.open(upgrade)
			if answer.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(answer.Status, body(t, answer))
			}
			roundTrip(t, conn, "to and fro")

			// The token is renewed: what is open goes on.
			f.update(func(s *corev1.Secret) {
				s.ResourceVersion, s.Data["token"] = "2", []byte("renewed")
				if way == "ClusterProxy" {
					throughTunnel(s)
				}
			})
			f.eventually("the new token is used", func() bool {
				conn, answer := f.open(upgrade)
				defer conn.Close()
				defer answer.Body.Close()
				return answer.StatusCode == http.StatusForbidden
			})
			roundTrip(t, conn, "still")

			if err := f.client.CoreV1().Secrets(namespace).Delete(t.Context(), "c1", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			awaitEnd(t, conn)
		})
	}
}

func roundTrip(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, len(text))
	if _, err := io.ReadFull(conn, back); err != nil || string(back) != text {
		t.Fatalf("%q came back, %v", back, err)
	}
}

// awaitEnd waits until the other side has ended a stream.
func awaitEnd(t *testing.T, stream io.Reader) {
	t.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = io.Copy(io.Discard, stream) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the stream goes on")
	}
}

// A stream ends when the Secret says that the cluster is elsewhere, also one that was begun with an earlier token.
func TestStreamsEndWithTheirPlace(t *testing.T) { // CG-02
	t.Parallel()
	began := make(chan struct{}, 1)
	f := setUp(t, gateway.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/watch" {
			return
		}
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		began <- struct{}{}
		<-r.Context().Done()
	}))
	f.create(nil)
	answer := f.get("/watch?watch=true")
	defer answer.Body.Close()
	<-began
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	if err != nil || line != "first\n" {
		t.Fatalf("%q %v: an event waits for the next one", line, err)
	}
	f.update(func(s *corev1.Secret) { s.ResourceVersion, s.Data["token"] = "2", []byte("renewed") })
	f.update(func(s *corev1.Secret) {
		s.ResourceVersion, s.Data["token"], s.Data["endpoint"] = "3", []byte("renewed"), []byte("https://127.0.0.2:1")
	})
	awaitEnd(t, answer.Body)
}

// Nobody reads, so that nobody may write much either.
func TestSlowReader(t *testing.T) { // CG-02
	t.Parallel()
	const much = 256 << 20
	written := make(chan int, 1)
	f := setUp(t, gateway.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/log" {
			return
		}
		// It writes until it has to wait.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(5 * time.Second))
		total, chunk := 0, make([]byte, 64<<10)
		for total < much {
			n, err := w.Write(chunk)
			total += n
			if err != nil {
				break
			}
		}
		written <- total
	}))
	f.create(nil)
	answer := f.get("/log?follow=true")
	defer answer.Body.Close()
	if n := <-written; n >= much/2 {
		t.Errorf("%d MiB were taken of the cluster for a caller that reads nothing", n>>20)
	}
}

func TestProxyFailures(t *testing.T) { // CG-02 CG-01
	t.Parallel()
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unused.Close()
	for _, test := range []struct {
		name   string
		tunnel gateway.Tunnel
		change func(*corev1.Secret)
		code   int
		want   string
	}{
		{"an unknown certificate", nil, func(s *corev1.Secret) { s.Data["ca.crt"] = otherCA }, 502,
			"what answers for cluster c1 is not trusted: tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		{"nothing there", nil, func(s *corev1.Secret) { s.Data["endpoint"] = []byte("https://" + unused.Addr().String()) }, 502,
			"the API server of cluster c1 cannot be reached"},
		{"no endpoint", nil, func(s *corev1.Secret) { delete(s.Data, "endpoint") }, 503, "Secret credentials/c1: key endpoint is missing; set it to"},
		{"no tunnels", nil, throughTunnel, 503, "this hub serves no tunnels; start the gateway with --tunnels, or set the endpoint"},
		{"not connected", &dialer{err: errNotConnected}, throughTunnel, 503,
			"cluster c1 cannot be reached through its tunnel: its agent is not connected; see whether the add-on cluster-proxy"},
		{"a tunnel that does not answer", &dialer{err: fmt.Errorf("dial: %w", context.DeadlineExceeded)}, throughTunnel, 503,
			"cannot be reached through its tunnel"},
		{"a tunnel to be verified", &dialer{}, func(s *corev1.Secret) { throughTunnel(s); delete(s.Data, "ca.crt") }, 503,
			"key ca.crt is missing; set it to the CA of the cluster"},
		{"a command that may not run", nil, func(s *corev1.Secret) {
			s.Labels[gatewayv1alpha1.LabelCredentialType] = "Dynamic"
			s.Data["exec"] = []byte(`{"apiVersion":"client.authentication.k8s.io/v1","command":"/bin/sh"}`)
		}, 503, `names the command \"/bin/sh\", which may not run on the hub; start the hub with --gateway-exec-commands`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, gateway.Options{Tunnel: test.tunnel}, http.HandlerFunc(echo))
			f.create(test.change)
			answer := f.get("/api")
			text := body(t, answer)
			if answer.StatusCode != test.code || !strings.Contains(text, `"kind":"Status"`) || !strings.Contains(text, test.want) {
				t.Errorf("%s %s\nwant %d %s", answer.Status, text, test.code, test.want)
			}
		})
	}
	f := setUp(t, gateway.Options{}, http.HandlerFunc(echo))
	f.create(version("1"))
	answer, err := http.Get(f.hub.URL + strings.Replace(prefix, "c1", "c2", 1))
	if err != nil {
		t.Fatal(err)
	}
	if text := body(t, answer); answer.StatusCode != 404 || !strings.Contains(text, "there is no Secret credentials/c2 with the label") {
		t.Error(answer.Status, text)
	}
}

// Who waits when a request ends is told why, and never that all is well.
func TestProxyFailuresOfWhatHasEnded(t *testing.T) { // CG-02
	t.Parallel()
	clusterGateways := schema.GroupResource{Group: "cluster.core.oam.dev", Resource: "clustergateways"}
	for name, test := range map[string]struct {
		cause error
		code  int
		want  string
	}{
		"the credential": {apierrors.NewUnauthorized("the token has expired"), http.StatusUnauthorized, "the token has expired"},
		"the right":      {apierrors.NewForbidden(clusterGateways, "c1", errors.New("it is lost")), http.StatusForbidden, "it is lost"},
	} {
		for _, when := range []string{"before it begins", "while the cluster does not answer"} {
			t.Run(name+" ends "+when, func(t *testing.T) {
				t.Parallel()
				begun := make(chan struct{}, 1)
				f := setUp(t, gateway.Options{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodDelete {
						begun <- struct{}{}
						<-r.Context().Done()
					}
				}))
				f.create(nil)
				f.within = func(ctx context.Context) context.Context {
					ctx, end := context.WithCancelCause(ctx)
					if when == "before it begins" {
						end(test.cause)
						return ctx
					}
					go func() {
						<-begun
						end(test.cause)
					}()
					return ctx
				}
				answer := f.do(http.MethodDelete, "/api/v1/namespaces/a", nil, nil)
				if text := body(t, answer); answer.StatusCode != test.code || !strings.Contains(text, test.want) {
					t.Errorf("%s %s\nwant %d %s", answer.Status, text, test.code, test.want)
				}
				if len(begun) > 0 {
					t.Error("the cluster gets a request that has ended")
				}
			})
		}
	}
	f := setUp(t, gateway.Options{}, http.HandlerFunc(echo))
	f.create(nil)
	f.within = func(ctx context.Context) context.Context {
		ctx, stop := context.WithDeadline(ctx, time.Unix(0, 0))
		t.Cleanup(stop)
		return ctx
	}
	if answer := f.get("/api"); answer.StatusCode != http.StatusGatewayTimeout {
		t.Error("the end for another cause:", answer.Status, body(t, answer))
	}
}

// Through a tunnel, the API server is verified under the name that it has in the cluster.
func TestTunnelIsVerified(t *testing.T) { // CG-02
	t.Parallel()
	for _, test := range []struct {
		name string
		code int
	}{{"kubernetes.default.svc", 200}, {"elsewhere.example.com", 502}} {
		tunnel := &dialer{}
		f := setUp(t, gateway.Options{Tunnel: tunnel}, http.HandlerFunc(echo), test.name)
		tunnel.address = f.cluster.Listener.Addr().String()
		f.create(throughTunnel)
		answer := f.get("/api")
		if text := body(t, answer); answer.StatusCode != test.code {
			t.Errorf("%s: %s %s", test.name, answer.Status, text)
		}
		tunnel.mu.Lock()
		if len(tunnel.dialled) == 0 || tunnel.dialled[0] != "c1 kubernetes.default.svc:443" {
			t.Errorf("dialled %q", tunnel.dialled)
		}
		tunnel.mu.Unlock()
	}
}

func TestRedirects(t *testing.T) { // CG-02
	t.Parallel()
	f := setUp(t, gateway.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Location", r.URL.Query().Get("to"))
		status := http.StatusFound
		if r.Method == http.MethodPost {
			status = http.StatusCreated
		}
		w.WriteHeader(status)
	}))
	f.create(nil)
	for to, want := range map[string]string{
		"/api/v1?a=b":                   prefix + "/api/v1?a=b",
		f.cluster.URL + "/x":            prefix + "/x",
		"below/":                        prefix + "/below/",
		"https://elsewhere.example.com": "",
		"//elsewhere.example.com/x":     "",
		"/../../../../../api/v1":        "",
		"../../../c2/proxy/api":         "",
	} {
		answer := f.get("/?to=" + strings.ReplaceAll(to, "?", "%3F"))
		if got := answer.Header.Get("Location"); got != want || (want == "") != (answer.StatusCode == http.StatusBadGateway) {
			t.Errorf("%s: %s to %q, want %q", to, answer.Status, got, want)
		}
		if answer.Header.Get("Set-Cookie") != "" {
			t.Error("the cluster sets cookies of the hub")
		}
		_ = answer.Body.Close()
		// What has been created is there, wherever the cluster says that it is.
		created := f.do(http.MethodPost, "/?to="+strings.ReplaceAll(to, "?", "%3F"), nil, nil)
		if got := created.Header.Get("Location"); got != want || created.StatusCode != http.StatusCreated {
			t.Errorf("%s: %s at %q, want it created at %q", to, created.Status, got, want)
		}
		_ = created.Body.Close()
	}
	for path, want := range map[string]string{
		"": prefix + "/proxy/c2", "/": prefix + "/proxy/c2", "/api": prefix + "/proxy/c2", "/api%2Fv1/": prefix + "/api%2Fv1/proxy/c2",
	} {
		answer := f.get(path + "?to=proxy/c2")
		if got := answer.Header.Get("Location"); got != want {
			t.Errorf("from %q: %s to %q, want %q", path, answer.Status, got, want)
		}
		_ = answer.Body.Close()
	}
}

func TestX509(t *testing.T) { // CG-01
	t.Parallel()
	f := setUp(t, gateway.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 || len(r.Header["Authorization"]) > 0 {
			http.Error(w, "who?", http.StatusUnauthorized)
		}
	}))
	f.cluster.TLS.ClientAuth = tls.RequestClientCert
	f.create(func(s *corev1.Secret) {
		s.Labels[gatewayv1alpha1.LabelCredentialType] = "X509Certificate"
		s.Data["tls.crt"], s.Data["tls.key"] = clientCert, clientKey
	})
	if answer := f.get("/api"); answer.StatusCode != http.StatusOK {
		t.Error(answer.Status, body(t, answer))
	}
}
