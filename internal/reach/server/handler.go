package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

var managedClusters = schema.GroupResource{Group: clusterv1.GroupVersion.Group, Resource: fleet.ResourceManagedClusters}

// verbConnect is the verb of requests that become connections.
const verbConnect = "create"

// Handler answers requests for subresources of managedclusters, and hands all others on. It expects the information
// about the request, and its user, in the context, where the handlers of an API server put them.
func (s *Server) Handler(next http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	fail := func(w http.ResponseWriter, r *http.Request, err error) {
		responsewriters.ErrorNegotiated(err, codecs, s.version, w, r)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, known := request.RequestInfoFrom(r.Context())
		if !known || !s.isAboutCluster(info) {
			next.ServeHTTP(w, r)
			return
		}
		var err error
		switch info.Subresource {
		case fleet.SubresourceProxy:
			err = s.serveProxy(w, r, info, fail)
		case api.Attach(s.version), fleet.SubresourcePortForward, fleet.SubresourceStream:
			err = s.serveConnection(w, r, info)
		default:
			next.ServeHTTP(w, r)
		}
		if err != nil {
			fail(w, r, err)
		}
	})
}

// isAboutCluster reports whether a request is for a managed cluster. Clusters have no namespace: a path with one is that of no cluster, and
// a right to it is one in that namespace alone.
func (s *Server) isAboutCluster(info *request.RequestInfo) bool {
	return info.IsResourceRequest && info.APIGroup == s.version.Group && info.Resource == managedClusters.Resource && info.Namespace == ""
}

// serveConnection makes a connection of a request, which is to create the subresource: who may only read it, or watch it, may not connect.
func (s *Server) serveConnection(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) error {
	if info.Verb != verbConnect {
		of := schema.GroupResource{Group: s.version.Group, Resource: managedClusters.Resource + "/" + info.Subresource}
		return apierrors.NewMethodNotSupported(of, info.Verb)
	}
	switch info.Subresource {
	case fleet.SubresourcePortForward:
		return s.servePortForward(w, r, info.Name)
	case fleet.SubresourceStream:
		return s.serveStream(w, r, info.Name)
	}
	return s.serveTunnel(w, r, info.Name)
}

// serveTunnel makes a tunnel of the request of an agent. It ends with the context of the request, which an API server ends with the
// credential of the agent.
func (s *Server) serveTunnel(w http.ResponseWriter, r *http.Request, name string) error {
	who, _ := request.UserFrom(r.Context())
	if who == nil || !isAgentOf(name, who.GetName(), who.GetGroups()) {
		return apierrors.NewForbidden(managedClusters, name, errors.New("only the agent of the cluster makes a tunnel"))
	}
	s.clusters.await(r.Context()) // so that tunnels are back as soon as a hub that has just started can have them
	if err := s.clusters.allow(r.Context(), name); err != nil {
		return err
	}
	t, err := tunnel.Accept(w, r)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	s.keep(r.Context(), name, t)
	return nil
}

// Authorize lets the agent of a cluster create a tunnel. It has no opinion on anything else.
func (s *Server) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	isTunnel := a.IsResourceRequest() && a.GetAPIGroup() == s.version.Group && a.GetResource() == managedClusters.Resource &&
		a.GetSubresource() == api.Attach(s.version) && a.GetVerb() == verbConnect && a.GetNamespace() == ""
	if isTunnel && isAgentOf(a.GetName(), a.GetUser().GetName(), a.GetUser().GetGroups()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// isAgentOf reports whether a user is the agent of the cluster, and of no other.
func isAgentOf(name, user string, groups []string) bool {
	clusters := fleet.AgentClusters(groups)
	of, _, err := fleet.ParseClusterUser(user)
	return err == nil && of == name && len(clusters) == 1 && clusters[0] == name
}

// serveProxy sends a request to the API server of a cluster, or to one of its services.
func (s *Server) serveProxy(w http.ResponseWriter, r *http.Request, info *request.RequestInfo,
	fail func(http.ResponseWriter, *http.Request, error)) error {
	to, err := target(r.URL, info)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	service, path, err := access.ServiceOf(to)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	who, _ := request.UserFrom(r.Context())
	if who == nil {
		return apierrors.NewInternalError(errors.New("the API server does not say whose request it is"))
	}
	sender := access.User{Name: who.GetName(), Groups: who.GetGroups()}
	if err := sender.Check(); err != nil {
		return apierrors.NewForbidden(managedClusters, "", err) // about no cluster, and so about nobody's rights
	}
	if err := s.check(service, who); err != nil {
		return err
	}
	prefix := shownPrefix(r.Context(), info)
	to.Host = s.address(info.Name)
	proxy := httputil.ReverseProxy{
		Transport:     s.transport,
		FlushInterval: -1, // of what is watched, each event counts
		BufferPool:    &buffers,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = to, host
			sender.Write(p.Out.Header)
			if service != nil {
				service.Mark(p.Out.Header)
			}
		},
		ModifyResponse: func(answer *http.Response) error {
			requestCount.WithLabelValues("true").Inc()
			if service != nil {
				return cleanServiceAnswer(answer, prefix, service, path)
			}
			return cleanAPIAnswer(answer, prefix, to)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, access.ErrRedirect) {
				fail(w, r, failure(http.StatusBadGateway, "BadGateway", err.Error()))
				return
			}
			requestCount.WithLabelValues("false").Inc()
			fail(w, r, s.clusters.explain(r.Context(), info.Name, err))
		},
	}
	proxy.ServeHTTP(w, r)
	return nil
}

// check says why the hub does not let a user send a request to a service or, without one, to the API server of a cluster.
func (s *Server) check(service *access.Service, who user.Info) error {
	switch {
	case service == nil:
		return s.checkAPIServers()
	case who.GetName() == user.Anonymous:
		return apierrors.NewUnauthorized("services of clusters are for users of the hub: send a token of the hub")
	}
	return s.exposed.check(service)
}

// checkAPIServers says why the hub lets nothing through to the API server of any cluster.
func (s *Server) checkAPIServers() error {
	if !s.servicesOnly {
		return nil
	}
	// The details tell clients that the hub has refused it. Without the name of a cluster, it is about all of them, and about nobody's rights.
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: "this hub lets requests for services of clusters through, and none for their API servers: its cluster proxy runs with " +
			"--enable-kube-api-proxy=false, which is enableKubeApiProxy of the chart cluster-proxy",
		Details: &metav1.StatusDetails{Group: managedClusters.Group, Kind: managedClusters.Resource},
	}}
}

// prefixOf is what comes before the path on the cluster.
func prefixOf(info *request.RequestInfo) string {
	return "/" + strings.Join([]string{info.APIPrefix, info.APIGroup, info.APIVersion, info.Resource, info.Name, info.Subresource}, "/")
}

type prefixKey struct{}

// WithPrefix says that a client has requested the cluster by a path with another prefix than that of the API.
func WithPrefix(ctx context.Context, prefix string) context.Context {
	return context.WithValue(ctx, prefixKey{}, prefix)
}

// shownPrefix is what comes before the path on the cluster in the eyes of the client.
func shownPrefix(ctx context.Context, info *request.RequestInfo) string {
	if prefix, isOther := ctx.Value(prefixKey{}).(string); isOther {
		return prefix
	}
	return prefixOf(info)
}

// host is what an agent sees as the host that is requested.
const host = "agent"

// target is what to request from the agent of a cluster, but for its address: all that comes after the name of the subresource, as it is
// written.
func target(from *url.URL, info *request.RequestInfo) (*url.URL, error) {
	prefix := prefixOf(info)
	written, isBelow := strings.CutPrefix(from.EscapedPath(), prefix)
	if !isBelow || written != "" && written[0] != '/' {
		return nil, fmt.Errorf("the path %q is not written as %s/PATH", from.EscapedPath(), prefix)
	}
	if written == "" {
		written = "/"
	}
	path, err := url.PathUnescape(written)
	if err != nil {
		return nil, err
	}
	if err := access.CheckPath(path); err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "http", Path: path, RawPath: written, RawQuery: from.RawQuery}, nil
}

// buffers are what answers are copied through.
var buffers = pool{sync.Pool{New: func() any { return make([]byte, 32<<10) }}}

type pool struct{ sync.Pool }

func (p *pool) Get() []byte  { return p.Pool.Get().([]byte) } //nolint:forcetypeassert // nothing else is put there
func (p *pool) Put(b []byte) { p.Pool.Put(b) }                //nolint:staticcheck // a slice header is small
