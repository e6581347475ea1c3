package userserver

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/token"
)

// ClusterTokens lets tokens of clusters in at the subresource proxy of the API of a hub itself, where there is no port for them. What
// applies for the port applies here: such a token says nothing about rights on the hub, and leads to the API server of that cluster alone.
type ClusterTokens struct {
	// Version is that of the resource managedclusters.
	Version schema.GroupVersion
}

// bearer is nobody on the hub, who has sent a token to be left to a cluster. No other user has this type, whatever is impersonated.
type bearer struct{ user.DefaultInfo }

// Authenticator tries the one of the hub first.
func (c ClusterTokens) Authenticator(hub authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		sent := token.Bearer(r.Header.Get("Authorization"))
		if !c.isForCluster(r.Context()) || !isOfServiceAccount(sent) {
			return hub.AuthenticateRequest(r)
		}
		answer, known, err := hub.AuthenticateRequest(r)
		if known || isUnsure(err) {
			return answer, known, err
		}
		r.Header.Set(fleet.HeaderClusterAuthorization, "Bearer "+sent)
		nobody := user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
		return &authenticator.Response{User: &bearer{nobody}}, true, nil
	})
}

func (c ClusterTokens) isForCluster(ctx context.Context) bool {
	info, known := request.RequestInfoFrom(ctx)
	return known && info.IsResourceRequest && info.APIGroup == c.Version.Group && info.APIVersion == c.Version.Version &&
		info.Resource == fleet.ResourceManagedClusters && info.Subresource == fleet.SubresourceProxy && info.Namespace == ""
}

// isUnsure reports whether a token that the hub does not take may be one of its own nevertheless. It must not get to a cluster then.
func isUnsure(err error) bool { return err != nil && !token.IsUnknown(err.Error()) }

// Authorize lets tokens of clusters through to these. It has no opinion on anything else.
func (c ClusterTokens) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	_, isBearer := a.GetUser().(*bearer)
	isProxy := a.IsResourceRequest() && a.GetAPIGroup() == c.Version.Group && a.GetResource() == fleet.ResourceManagedClusters &&
		a.GetSubresource() == fleet.SubresourceProxy && a.GetNamespace() == ""
	if isBearer && isProxy {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}
