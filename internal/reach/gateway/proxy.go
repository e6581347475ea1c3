package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/transport"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/internal/reach/access"
	"github.com/capstan-io/capstan/internal/reach/gateway/identity"
	"github.com/capstan-io/capstan/internal/reach/lasting"
)

// Names in the query of a request.
const (
	queryImpersonate   = "impersonate"
	queryDryRun        = "dryRun"
	queryDryRunEscaped = "__dryRun"
)

// proxy hands requests on to clusters.
type proxy struct {
	*Gateway
	authorizer authorizer.UnconditionalAuthorizer
}

var _ rest.Connecter = &proxy{}

// New implements rest.Storage.
func (*proxy) New() runtime.Object { return &gatewayv1alpha1.ClusterGateway{} }

// Destroy implements rest.Storage.
func (*proxy) Destroy() {}

// ConnectMethods implements rest.Connecter.
func (*proxy) ConnectMethods() []string {
	return []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}
}

// NewConnectOptions implements rest.Connecter. The path is taken from the request, where escapes are still what they were.
func (*proxy) NewConnectOptions() (options runtime.Object, subpath bool, subpathKey string) {
	return nil, true, ""
}

// Connect implements rest.Connecter.
func (p *proxy) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	caller, found := request.UserFrom(ctx)
	if !found {
		return nil, apierrors.NewUnauthorized("nobody has said who this request is from")
	}
	to, err := p.connect(name)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := p.prepare(to, caller, r)
		if err != nil {
			responder.Error(err)
			return
		}
		f.forward(w, r, responder)
	}), nil
}

// connect returns the connection for the Secret as it is now, so that one which goes at this moment does not leave a stream behind.
func (p *proxy) connect(name string) (*connection, error) {
	backend, err := p.backend()
	if err != nil {
		return nil, err
	}
	for {
		secret, err := backend.secrets.Get(name)
		if err != nil {
			return nil, p.notFound(name)
		}
		to := p.connections.to(secret)
		if to.problem != nil {
			return nil, apierrors.NewServiceUnavailable(to.problem.Error())
		}
		switch now, err := backend.secrets.Get(name); {
		case err != nil:
			p.connections.gone(name)
		case now.UID == secret.UID && now.ResourceVersion == secret.ResourceVersion:
			return to, nil
		}
	}
}

// forwarding is a request that is passed to a cluster.
type forwarding struct {
	to *connection
	// path is the one on the cluster, prefix what comes before it on the hub, both as they are escaped.
	path, prefix string
	query        string
	// as is whom the request impersonates; nil is nobody.
	as *identity.Identity
	// about is what the request is about on the cluster.
	about *request.RequestInfo
}

// prepare says what goes to the cluster, and refuses what may not.
func (p *proxy) prepare(to *connection, caller user.Info, r *http.Request) (*forwarding, error) {
	f := &forwarding{to: to, prefix: "/apis/" + gatewayv1alpha1.GroupVersion.String() + "/" + resource + "/" + to.cluster.Name + "/" +
		subresourceProxy}
	decoded, err := f.readPath(r.URL)
	if err != nil {
		return nil, err
	}
	impersonates, err := f.readQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	if f.about, err = requestInfo(r, decoded, f.query); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("path %s of cluster %s: %v", decoded, to.cluster.Name, err))
	}
	if impersonates || p.PenetrateIdentity {
		f.as = identity.OnCluster(identityOf(caller), to.cluster.Name, to.cluster.Rules, p.Rules)
		if err := checkImpersonated(f.as); err != nil {
			return nil, &apierrors.StatusError{ErrStatus: status(http.StatusForbidden, metav1.StatusReasonForbidden,
				fmt.Sprintf("the caller cannot be impersonated on clusters: %v", err))}
		}
	}
	if p.AuthorizeSubpath {
		if err := p.authorize(r, caller, f.about); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// checkImpersonated refuses an identity that is another one, or none, in headers; nil is nobody.
func checkImpersonated(as *identity.Identity) error {
	if as == nil {
		return nil
	}
	if as.User == "" {
		return errors.New("the user has no name on this hub")
	}
	if err := (access.User{Name: as.User, Groups: as.Groups}).Check(); err != nil {
		return err
	}
	if err := access.CheckIdentity("UID", as.UID); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(as.Extra)) {
		for _, value := range as.Extra[key] {
			if err := access.CheckIdentity("extra "+key, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// readPath takes the path on the cluster from that on the hub. It stays escaped as it is, and does not lead out of the endpoint.
func (f *forwarding) readPath(from *url.URL) (decoded string, err error) {
	path, below := strings.CutPrefix(from.EscapedPath(), f.prefix)
	if !below || path != "" && path[0] != '/' {
		return "", apierrors.NewBadRequest(fmt.Sprintf("path %q: write what comes before the path on the cluster as %s, without escapes",
			from.EscapedPath(), f.prefix))
	}
	if path == "" {
		path = "/"
	}
	if decoded, err = url.PathUnescape(path); err != nil {
		return "", apierrors.NewBadRequest(fmt.Sprintf("path %q: %v", path, err))
	}
	for segment := range strings.SplitSeq(strings.ReplaceAll(decoded, `\`, "/"), "/") {
		if segment == "." || segment == ".." {
			return "", apierrors.NewBadRequest(fmt.Sprintf("path %q leads elsewhere by %q; write the path without it", path, segment))
		}
	}
	f.path = path
	return decoded, nil
}

// readQuery takes what is for the gateway out of the query.
func (f *forwarding) readQuery(raw string) (impersonates bool, err error) {
	var kept []string
	for pair := range strings.SplitSeq(raw, "&") {
		escaped, value, _ := strings.Cut(pair, "=")
		key, err := url.QueryUnescape(escaped)
		if err != nil {
			return false, apierrors.NewBadRequest(fmt.Sprintf("query %q: %v", pair, err))
		}
		switch key {
		case queryImpersonate:
			if impersonates, err = strconv.ParseBool(value); err != nil {
				return false, apierrors.NewBadRequest(fmt.Sprintf("query %s is %q; use true or false", queryImpersonate, value))
			}
			continue
		case queryDryRunEscaped:
			pair = queryDryRun + strings.TrimPrefix(pair, escaped)
		}
		if pair != "" {
			kept = append(kept, pair)
		}
	}
	f.query = strings.Join(kept, "&")
	return impersonates, nil
}

// Handler lets requests through to proxies with the query dryRun, which is for the cluster and which an API server refuses for what it
// hands on.
func (*Gateway) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isProxy(r) || !strings.Contains(r.URL.RawQuery, "=") {
			next.ServeHTTP(w, r)
			return
		}
		pairs := strings.Split(r.URL.RawQuery, "&")
		for i, pair := range pairs {
			escaped, _, _ := strings.Cut(pair, "=")
			if key, err := url.QueryUnescape(escaped); err == nil && key == queryDryRun {
				pairs[i] = queryDryRunEscaped + strings.TrimPrefix(pair, escaped)
			}
		}
		changed := *r
		changed.URL = new(url.URL)
		*changed.URL = *r.URL
		changed.URL.RawQuery = strings.Join(pairs, "&")
		next.ServeHTTP(w, &changed)
	})
}

func isProxy(r *http.Request) bool {
	info, found := request.RequestInfoFrom(r.Context())
	return found && info.IsResourceRequest && info.APIGroup == gatewayv1alpha1.GroupVersion.Group && info.Resource == resource &&
		info.Subresource == subresourceProxy
}

var kubernetesAPI = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// requestInfo is what the cluster will take the request for.
func requestInfo(r *http.Request, path, query string) (*request.RequestInfo, error) {
	there := &http.Request{Method: r.Method, Header: r.Header, URL: &url.URL{Path: path, RawQuery: query}}
	return kubernetesAPI.NewRequestInfo(there)
}

// authorize checks whether the caller may do on the hub what the request does on the cluster. What lasts ends with the right to that.
func (p *proxy) authorize(r *http.Request, caller user.Info, about *request.RequestInfo) error {
	ctx := request.WithRequestInfo(request.WithUser(r.Context(), caller), about)
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return err
	}
	for _, right := range lasting.Rights(r.Header, attributes) {
		if err := p.authorizeRight(ctx, right); err != nil {
			return err
		}
		lasting.Follow(ctx, right)
	}
	return nil
}

func (p *proxy) authorizeRight(ctx context.Context, right authorizer.Attributes) error {
	decision, reason, err := p.authorizer.Authorize(ctx, right)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("authorize the path on the cluster: %w", err))
	}
	what := right.GetVerb() + " " + right.GetPath()
	return &apierrors.StatusError{ErrStatus: status(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf(
		"user %q may not %s on this hub, and so not on clusters either; grant it on the hub, or serve without --authorize-proxy-subpath. %s",
		right.GetUser().GetName(), what, reason))}
}

func identityOf(caller user.Info) identity.Identity {
	return identity.Identity{User: caller.GetName(), UID: caller.GetUID(), Groups: caller.GetGroups(), Extra: caller.GetExtra()}
}

// forward sends the request and copies the answer, or both directions of a connection that is upgraded, until one side ends it.
func (f *forwarding) forward(w http.ResponseWriter, r *http.Request, responder rest.Responder) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(f.to.ctx, func() { cancel(context.Cause(f.to.ctx)) })() //nolint:contextcheck // it is that of the cluster
	observed := &observedWriter{ResponseWriter: w, to: f.to, about: f.about, started: time.Now()}
	reverse := &httputil.ReverseProxy{
		Rewrite:        f.rewrite,
		Transport:      f.transport(r),
		FlushInterval:  -1,
		ModifyResponse: f.cleanAnswer,
		ErrorHandler: func(_ http.ResponseWriter, failed *http.Request, err error) {
			if errors.Is(context.Cause(r.Context()), context.Canceled) { //nolint:contextcheck // that of the cluster may have ended alone
				return // the client has left; what ends a request that is still waited for has another cause
			}
			failure := f.failure(failed.Context(), err)
			observed.observe(int(failure.ErrStatus.Code))
			responder.Error(failure)
		},
		BufferPool: buffers,
		ErrorLog:   log.New(io.Discard, "", 0), // that a client or a cluster breaks a stream off is nothing to do about
	}
	reverse.ServeHTTP(observed, r.WithContext(ctx))
}

// transport is that of the cluster, for this request and for whom it is.
func (f *forwarding) transport(r *http.Request) http.RoundTripper {
	base := f.to.requests
	if access.IsUpgrade(r.Header) {
		base = f.to.upgrades
	}
	if f.as == nil {
		return base
	}
	return transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
		UserName: f.as.User, UID: f.as.UID, Groups: f.as.Groups, Extra: f.as.Extra,
	}, base)
}

// rewrite makes the request that goes to the cluster.
func (f *forwarding) rewrite(r *httputil.ProxyRequest) {
	endpoint := f.to.cluster.Endpoint
	out := r.Out.URL
	out.Scheme, out.Host, out.RawQuery = endpoint.Scheme, endpoint.Host, f.query
	escaped := endpoint.EscapedPath() + f.path
	out.RawPath = escaped
	out.Path, _ = url.PathUnescape(escaped) // both parts have been read before
	r.Out.Host = ""
	cleanRequest(r.Out.Header)
}

// bearerProtocol is the prefix of a WebSocket protocol that is a token.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// cleanRequest takes away what says who the caller is: on the cluster, that is for the gateway to say.
func cleanRequest(header http.Header) {
	for name := range header {
		lower := strings.ToLower(name)
		if lower == "authorization" || lower == "cookie" || strings.HasPrefix(lower, "impersonate-") || strings.HasPrefix(lower, "x-remote-") {
			delete(header, name)
		}
	}
	const protocols = "Sec-Websocket-Protocol"
	if offered := header.Values(protocols); len(offered) > 0 {
		var kept []string
		for protocol := range strings.SplitSeq(strings.Join(offered, ","), ",") {
			if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, bearerProtocol) {
				kept = append(kept, protocol)
			}
		}
		header.Set(protocols, strings.Join(kept, ", "))
	}
}

// cleanAnswer keeps the cluster from speaking for the hub.
func (f *forwarding) cleanAnswer(answer *http.Response) error {
	for _, name := range []string{"Audit-Id", "Cache-Control", "Set-Cookie"} {
		answer.Header.Del(name)
	}
	requested := &url.URL{RawPath: f.path, RawQuery: f.query}
	requested.Path, _ = url.PathUnescape(f.path) // it has been read before
	return access.RewriteLocation(answer, func(location string) (string, error) {
		return access.Redirect(location, requested, f.to.cluster.Endpoint, f.prefix)
	})
}

// buffers are for copying answers.
var buffers = &bufferPool{sync.Pool{New: func() any { return new([32 << 10]byte) }}}

type bufferPool struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (b *bufferPool) Get() []byte {
	return b.pool.Get().(*[32 << 10]byte)[:] //nolint:forcetypeassert // nothing else is put there
}

// Put implements httputil.BufferPool.
func (b *bufferPool) Put(buffer []byte) { b.pool.Put((*[32 << 10]byte)(buffer)) }
