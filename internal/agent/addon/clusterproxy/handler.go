package clusterproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
	"github.com/capstan-io/capstan/internal/reach/access"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/token"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

// apiServer is the address of the API server of the managed cluster, wherever the agent finds it.
const apiServer = "kubernetes.default.svc:443"

// connectTimeout is how long the API server may take to accept a connection.
const connectTimeout = 10 * time.Second

// apiHandler answers what comes through the tunnel: requests of users of the hub to the API server of the managed cluster and to its
// services, and connections to the API server for those who have a credential of the cluster itself.
type apiHandler struct {
	server *url.URL
	// dial connects to its address, as the agent reaches it.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// own has the credential of the agent, with which it impersonates users of the hub; none has no credential.
	own, none transports
	requests  request.RequestInfoResolver
	rules     *rules
	tokens    *tokens
	services  *services
}

// transports are to the API server. One of them takes connections that are upgraded, which HTTP/2 does not support.
type transports struct{ ordinary, upgrade http.RoundTripper }

func newHandler(managed *rest.Config, rules *rules, inCluster bool) (*apiHandler, error) {
	server, _, err := rest.DefaultServerUrlFor(managed)
	if err != nil {
		return nil, err
	}
	h := &apiHandler{server: server, rules: rules, services: newServices(managed, rules, inCluster), requests: &request.RequestInfoFactory{
		APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
	}}
	if h.dial, err = newDial(managed); err != nil {
		return nil, err
	}
	if h.tokens, err = newTokens(managed, rules); err != nil {
		return nil, err
	}
	if h.own, err = newTransports(managed); err != nil {
		return nil, err
	}
	h.none, err = newTransports(rest.AnonymousClientConfig(managed))
	return h, err
}

// newDial goes through the proxy that the configuration, or else the environment, names for the API server.
func newDial(managed *rest.Config) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	config := rest.CopyConfig(managed)
	if config.Proxy == nil {
		config.Proxy = http.ProxyFromEnvironment
	}
	if err := forwardproxy.Use(config); err != nil {
		return nil, err
	}
	if config.Dial != nil {
		return config.Dial, nil
	}
	return (&net.Dialer{}).DialContext, nil
}

// newTransports returns transports that the agent's other clients do not share: these read what they get, and may hold more of it.
func newTransports(config *rest.Config) (transports, error) {
	config = rest.CopyConfig(config)
	if config.Proxy == nil {
		config.Proxy = http.ProxyFromEnvironment // the default; client-go shares a transport unless the configuration says it
	}
	ordinary, err := rest.TransportFor(config)
	if err != nil {
		return transports{}, err
	}
	boundStreams(ordinary)
	config.NextProtos = []string{"http/1.1"}
	upgrade, err := rest.TransportFor(config)
	return transports{ordinary: ordinary, upgrade: upgrade}, err
}

// boundStreams has a transport of client-go hold no more of an answer that nobody reads than the tunnel does.
func boundStreams(of http.RoundTripper) {
	switch of := of.(type) {
	case *http.Transport:
		of.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: tunnel.Window}
	case utilnet.RoundTripperWrapper:
		boundStreams(of.WrappedRoundTripper())
	}
}

func (h *apiHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		h.connect(w, r)
		return
	}
	if err := h.serve(w, r); err != nil { //nolint:contextcheck // that of the request, which the rules of the cluster may end
		writeError(w, err)
	}
}

// serve lets a request through if, and as long as, the rules of the cluster allow it.
func (h *apiHandler) serve(w http.ResponseWriter, r *http.Request) error {
	if err := access.CheckPath(r.URL.Path); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	user, err := access.Read(r.Header)
	if err != nil {
		return apierrors.NewUnauthorized(err.Error())
	}
	if isDiscoveryOrSelfReview(r) { // and is soon over
		refused, err := h.answerSelfReview(w, r, user)
		switch {
		case err != nil:
			return err
		case refused != nil:
			return writeReview(w, refused)
		}
		return h.pass(w, r, user)
	}
	ctx, end, err := h.whileAllowed(r, user)
	if err != nil {
		return err
	}
	defer end()
	return h.pass(w, r.WithContext(ctx), user)
}

// whileAllowed returns the context of a request, which ends when the rules of the cluster do not allow the request any more.
func (h *apiHandler) whileAllowed(r *http.Request, user access.User) (context.Context, context.CancelFunc, error) {
	info, err := h.requests.NewRequestInfo(r)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	verbs := verbsOf(r.Header, info) // now: the header changes while the request is passed on
	return h.rules.follow(r.Context(), func() error {
		for _, verb := range verbs {
			if err := h.rules.check(user, access.Request{Verb: verb, Namespace: info.Namespace}); err != nil {
				return apierrors.NewForbidden(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name, err)
			}
		}
		return nil
	})
}

// verbsOf are those that a rule has to allow for a request.
func verbsOf(header http.Header, info *request.RequestInfo) []string {
	if access.IsUpgrade(header) {
		return []string{info.Verb, access.VerbUpgrade}
	}
	return []string{info.Verb}
}

// pass sends a request on. To the API server, with a credential of the cluster it is one of whom that is of, with a token of the OIDC
// issuer that the owner of the cluster trusts it is one of whom that names, and otherwise one of the user of the hub. What is open with a
// token ends with it: API servers authenticate when a request starts, and a stream may go on for days.
func (h *apiHandler) pass(w http.ResponseWriter, r *http.Request, user access.User) error {
	service, path, err := access.MarkedService(r)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	credential := r.Header.Get(fleet.HeaderClusterAuthorization)
	if user.Anonymous() && (credential == "" || service != nil) {
		return apierrors.NewUnauthorized("the hub does not know who sends the request, and it has no credential of the cluster")
	}
	access.Strip(r.Header)
	r.Header.Del(fleet.HeaderClusterAuthorization)
	if service != nil {
		return h.services.serve(w, r, service, path, credential)
	}
	ctx, cancel := token.Context(r.Context(), token.Bearer(credential))
	defer cancel()
	r = r.WithContext(ctx)
	if credential == "" {
		h.proxy(h.own, r, user.OnCluster().Impersonate).ServeHTTP(w, r)
		return nil
	}
	trusted := h.rules.issuer()
	person, issued, err := h.tokens.issuedTo(ctx, credential)
	switch {
	case err != nil:
		return orNotAllowed(ctx, err)
	case issued:
		ctx, end, err := h.rules.follow(ctx, func() error {
			if h.rules.issuer() != trusted {
				return notAccepted("the cluster does not trust the issuer any more, or in another way")
			}
			return nil
		})
		if err != nil {
			return err
		}
		defer end()
		h.proxy(h.own, r, person.Impersonate).ServeHTTP(w, r.WithContext(ctx))
	default:
		h.proxy(h.none, r, func(header http.Header) { header.Set("Authorization", credential) }).ServeHTTP(w, r)
	}
	return nil
}

// proxy sends a request on. identify says whose it is at the end, so that no header of the request that names others to be left out on the
// way has it be one of the agent.
func (h *apiHandler) proxy(to transports, r *http.Request, identify func(http.Header)) *httputil.ReverseProxy {
	transport := to.ordinary
	if access.IsUpgrade(r.Header) {
		transport = to.upgrade
	}
	return &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, BufferPool: &buffers,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(h.server)
			identify(p.Out.Header)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			writeError(w, orNotAllowed(r.Context(),
				api.Unreached("", fmt.Sprintf("the agent does not reach the API server of its cluster: %v", err))))
		},
	}
}

// connect connects to the API server, and copies what comes from either side to the other, for as long as the rules of the cluster let
// anybody in. Who requests what is between the two: it is encrypted.
func (h *apiHandler) connect(w http.ResponseWriter, r *http.Request) {
	if r.Host != apiServer {
		http.Error(w, fmt.Sprintf("the agent connects to %s, and not to %s", apiServer, r.Host), http.StatusForbidden)
		return
	}
	ctx, end, err := h.rules.follow(r.Context(), h.rules.checkConnection)
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	defer end()
	server, err := h.dialServer(ctx)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	hub, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = server.Close()
		return
	}
	if _, err := io.WriteString(hub, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = server.Close()
		_ = hub.Close()
		return
	}
	join(ctx, hub, buffered, server)
}

func (h *apiHandler) dialServer(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return h.dial(ctx, "tcp", hostPort(h.server))
}

// join copies in both directions until one of the connections ends, or the context, and closes both.
func join(ctx context.Context, hub net.Conn, fromHub io.Reader, server net.Conn) {
	defer context.AfterFunc(ctx, func() { _, _ = hub.Close(), server.Close() })()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(server, fromHub); _ = server.Close() })
	_, _ = io.Copy(hub, server)
	_ = hub.Close()
	both.Wait()
}

func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "http" {
		return net.JoinHostPort(u.Hostname(), "80")
	}
	return net.JoinHostPort(u.Hostname(), "443")
}

// writeError answers as an API server does.
func writeError(w http.ResponseWriter, err error) {
	var apiStatus apierrors.APIStatus
	if !errors.As(err, &apiStatus) {
		apiStatus = apierrors.NewInternalError(err)
	}
	status := apiStatus.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

// buffers are what answers are copied through.
var buffers = pool{sync.Pool{New: func() any { return make([]byte, 32<<10) }}}

type pool struct{ sync.Pool }

func (p *pool) Get() []byte  { return p.Pool.Get().([]byte) } //nolint:forcetypeassert // nothing else is put there
func (p *pool) Put(b []byte) { p.Pool.Put(b) }                //nolint:staticcheck // a slice header is small
