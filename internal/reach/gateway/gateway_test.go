package gateway_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/cert"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/internal/reach/gateway"
)

const (
	namespace = "credentials"
	prefix    = "/apis/cluster.core.oam.dev/v1alpha1/clustergateways/c1/proxy"
)

// fixture is a gateway behind the parts of an API server that it relies on, and the cluster c1.
type fixture struct {
	*testing.T
	client  *fake.Clientset
	gateway *gateway.Gateway
	hub     *httptest.Server
	cluster *httptest.Server
	ca      []byte
	// caller makes the requests to the hub, and rights says what it may there.
	caller user.Info
	rights authorizer.AuthorizerFunc
	// within limits the contexts of requests; nil does not.
	within func(context.Context) context.Context
}

// setUp starts a gateway, and an API server of a cluster, which may have a name.
func setUp(t *testing.T, o gateway.Options, cluster http.Handler, names ...string) *fixture {
	t.Helper()
	f := &fixture{T: t, client: fake.NewClientset(), caller: &user.DefaultInfo{Name: "alice", Groups: []string{"ops"},
		Extra: map[string][]string{"example.com/from": {"here"}}}}
	f.startCluster(cluster, append(names, "127.0.0.1")[0])
	o.Namespace = namespace
	f.gateway = gateway.New(o)
	ctx, stop := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	parts.Go(func() { _ = f.gateway.Run(ctx, f.client) })
	parts.Go(func() { _ = f.gateway.Probe(ctx) })
	t.Cleanup(func() { stop(); parts.Wait() })
	f.rights = func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "not in this test", nil
	}
	f.hub = httptest.NewServer(f.gateway.Handler(http.HandlerFunc(f.serve)))
	f.hub.Config.Handler = withRequestInfo(f.hub.Config.Handler)
	t.Cleanup(f.hub.Close)
	return f
}

func (f *fixture) startCluster(handler http.Handler, name string) {
	f.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(name, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		f.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		f.Fatal(err)
	}
	f.ca = certificate
	f.cluster = httptest.NewUnstartedServer(handler)
	f.cluster.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	f.cluster.EnableHTTP2 = true
	f.cluster.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.cluster.StartTLS()
	f.Cleanup(f.cluster.Close)
}

func withRequestInfo(next http.Handler) http.Handler {
	infos := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := infos.NewRequestInfo(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), info)))
	})
}

// serve does what an API server does with a subresource that connects.
func (f *fixture) serve(w http.ResponseWriter, r *http.Request) {
	group := f.gateway.APIGroup(gateway.NewScheme(), f.rights)
	connecter, ok := group.VersionedResourcesStorageMap["v1alpha1"]["clustergateways/proxy"].(rest.Connecter)
	if !ok {
		panic("proxy connects nothing")
	}
	ctx := request.WithUser(r.Context(), f.caller)
	if f.within != nil {
		ctx = f.within(ctx)
	}
	info, _ := request.RequestInfoFrom(ctx)
	responder := &responder{w: w, r: r}
	handler, err := connecter.Connect(ctx, info.Name, nil, responder)
	if err != nil {
		responder.Error(err)
		return
	}
	handler.ServeHTTP(w, r.WithContext(ctx))
}

type responder struct {
	w http.ResponseWriter
	r *http.Request
}

func (r *responder) Object(int, runtime.Object) { panic("nothing answers so") }

func (r *responder) Error(err error) {
	responsewriters.ErrorNegotiated(err, scheme.Codecs, corev1.SchemeGroupVersion, r.w, r.r)
}

// secret is that of c1, with changes.
func (f *fixture) secret(change func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c1", UID: "1", ResourceVersion: "1", Annotations: map[string]string{},
			Labels: map[string]string{gatewayv1alpha1.LabelCredentialType: "ServiceAccountToken"}},
		Data: map[string][]byte{"endpoint": []byte(f.cluster.URL), "ca.crt": f.ca, "token": []byte("of-gateway")},
	}
	if change != nil {
		change(s)
	}
	return s
}

// create writes the Secret of c1 and waits until the gateway knows it.
func (f *fixture) create(change func(*corev1.Secret)) {
	f.Helper()
	if _, err := f.client.CoreV1().Secrets(namespace).Create(f.Context(), f.secret(change), metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	f.eventually("the Secret is known", func() bool {
		answer := f.get("/known")
		defer answer.Body.Close()
		return answer.StatusCode != http.StatusNotFound && !strings.Contains(body(f.T, answer), "is starting")
	})
}

func (f *fixture) eventually(what string, check func() bool) {
	f.Helper()
	err := wait.PollUntilContextTimeout(f.Context(), 5*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return check(), nil })
	if err != nil {
		f.Fatalf("not after a minute: %s", what)
	}
}

// get requests a path on c1, escaped as it is.
func (f *fixture) get(path string) *http.Response {
	f.Helper()
	return f.do(http.MethodGet, path, nil, nil)
}

func (f *fixture) do(method, path string, header http.Header, content []byte) *http.Response {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, f.hub.URL+prefix+path, bytes.NewReader(content))
	if err != nil {
		f.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	return answer
}

func body(t *testing.T, answer *http.Response) string {
	t.Helper()
	defer answer.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(answer.Body); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// dialer is a tunnel that ends at an address of this machine.
type dialer struct {
	address string
	err     error
	mu      sync.Mutex
	dialled []string
}

// DialCluster implements gateway.Tunnel.
func (d *dialer) DialCluster(ctx context.Context, cluster, address string) (net.Conn, error) {
	d.mu.Lock()
	d.dialled = append(d.dialled, cluster+" "+address)
	d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", d.address)
}

func throughTunnel(s *corev1.Secret) {
	s.Labels[gatewayv1alpha1.LabelEndpointType] = "ClusterProxy"
	delete(s.Data, "endpoint")
}

var errNotConnected = errors.New("its agent is not connected")

func (f *fixture) update(change func(*corev1.Secret)) {
	f.Helper()
	if _, err := f.client.CoreV1().Secrets(namespace).Update(f.Context(), f.secret(change), metav1.UpdateOptions{}); err != nil {
		f.Fatal(err)
	}
}

func version(v string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.ResourceVersion = v }
}
