// Package userserver serves managed clusters at a port of its own, by https://HOST/CLUSTER/PATH: the address that clients know from the
// user server of Open Cluster Management's cluster-proxy.
//
// Who has a token or a client certificate of the hub is that user, with the rights that the API of the hub requires. The token of a service
// account that the hub does not know is left to the cluster, which may have issued it, such as that of a ManagedServiceAccount; and so is
// that of an OIDC issuer whose tokens are for clusters. It says nothing about rights on the hub, and leads to the API server of the cluster
// alone. Tokens of other kinds never reach a cluster: whether a hub knows them may depend on others who do not answer just then. Nor do
// those of which the hub is not sure. Nobody is impersonated with a credential for a cluster.
package userserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4/jwt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/server"
	"github.com/capstan-io/capstan/internal/reach/token"
)

// Options are what a Handler hands requests on to.
type Options struct {
	// Version is that of the resource managedclusters, whose subresource proxy they are written as.
	Version schema.GroupVersion
	// API authenticates and authorizes those of users of the hub.
	API http.Handler
	// Clusters takes the others as they are. It goes by the user and the information about the request in the context.
	Clusters http.Handler
	// Tokens knows those of the hub. It fails with token.ErrDoubtful for what the hub refuses, but may be one of them.
	Tokens authenticator.Token
	// Issuers are OIDC issuers, by the URLs that their tokens have, whose tokens are left to clusters.
	Issuers []string
	// Codecs write errors.
	Codecs runtime.NegotiatedSerializer
}

// Handler answers requests for /CLUSTER/PATH.
type Handler struct {
	Options
	infos request.RequestInfoResolver
}

// New returns a handler.
func New(o Options) *Handler {
	infos := &request.RequestInfoFactory{APIPrefixes: sets.NewString("apis"), GrouplessAPIPrefixes: sets.NewString()}
	return &Handler{Options: o, infos: infos}
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.serve(w, r); err != nil {
		responsewriters.ErrorNegotiated(err, h.Codecs, h.Version, w, r)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) error {
	proxied, err := h.asProxy(r)
	if err != nil {
		return err
	}
	sent := token.Bearer(r.Header.Get("Authorization"))
	ctx, cancel := token.Context(proxied.Context(), token.Of(r.Header)...)
	defer cancel()
	proxied = proxied.WithContext(ctx) //nolint:contextcheck // token.Context is that of the request, but for its end
	ofCluster, err := h.isOfCluster(r.Context(), sent)
	switch {
	case err != nil:
		return err
	case (ofCluster || proxied.Header.Get(fleet.HeaderClusterAuthorization) != "") && api.Impersonates(proxied.Header):
		return apierrors.NewForbidden(schema.GroupResource{}, "", errImpersonates)
	case ofCluster:
		return h.leaveToCluster(w, proxied, sent)
	}
	h.API.ServeHTTP(w, proxied)
	return nil
}

// errImpersonates says that a request would be one of whom its credential for the cluster is of, whomever it names: the API of the hub
// knows who may impersonate whom there, and not on a cluster.
var errImpersonates = errors.New("with a credential for the cluster, nobody is impersonated: leave out the headers Impersonate-*, " +
	"such as those of --as, or send a credential of the hub alone")

// isOfCluster reports whether a token is left to the cluster.
func (h *Handler) isOfCluster(ctx context.Context, sent string) (bool, error) {
	if !h.maybeOfCluster(sent) {
		return false, nil
	}
	_, ofHub, err := h.Tokens.AuthenticateToken(ctx, sent)
	if errors.Is(err, token.ErrDoubtful) {
		return false, nil // the API of the hub refuses it, too, so that the client gets another
	}
	if err != nil {
		return false, apierrors.NewServiceUnavailable(fmt.Sprintf("the hub cannot say whose token this is: %v", err))
	}
	return !ofHub, nil
}

// asProxy writes a request as one for the subresource proxy of a cluster.
func (h *Handler) asProxy(r *http.Request) (*http.Request, error) {
	escaped := r.URL.EscapedPath()
	cluster, _, _ := strings.Cut(strings.TrimPrefix(escaped, "/"), "/")
	if len(validation.IsDNS1123Subdomain(cluster)) > 0 {
		return nil, notFound("the path %q does not begin with the name of a cluster: write it as /CLUSTER/PATH, such as /cluster1/version",
			escaped)
	}
	own, there := "/"+cluster, api.Path(h.Version, cluster, fleet.SubresourceProxy)
	r = r.Clone(server.WithPrefix(r.Context(), own))
	r.URL = &url.URL{Path: there + strings.TrimPrefix(r.URL.Path, own), RawPath: there + strings.TrimPrefix(escaped, own),
		RawQuery: r.URL.RawQuery}
	r.RequestURI = r.URL.RequestURI()
	return r, nil
}

// leaveToCluster sends a request to the API server of the cluster as one of whom the token is of there.
func (h *Handler) leaveToCluster(w http.ResponseWriter, r *http.Request, sent string) error {
	info, err := h.infos.NewRequestInfo(r)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	nobody := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	r = r.WithContext(request.WithUser(request.WithRequestInfo(r.Context(), info), nobody))
	r.Header.Set(fleet.HeaderClusterAuthorization, "Bearer "+sent)
	h.Clusters.ServeHTTP(w, r)
	return nil
}

// maybeOfCluster reads what a token says of itself. Whether that is true its cluster knows.
func (h *Handler) maybeOfCluster(sent string) bool {
	claims, ok := token.Claims(sent)
	return ok && (isServiceAccount(claims) || slices.Contains(h.Issuers, claims.Issuer))
}

func isOfServiceAccount(sent string) bool {
	claims, ok := token.Claims(sent)
	return ok && isServiceAccount(claims)
}

func isServiceAccount(claims jwt.Claims) bool {
	return strings.HasPrefix(claims.Subject, serviceaccount.ServiceAccountUsernamePrefix)
}

func notFound(format string, args ...any) error {
	err := apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, false)
	err.ErrStatus.Message = fmt.Sprintf(format, args...)
	return err
}
