// Package lasting says which rights requests need for as long as they last. Most need the one that an API server has authorized. Who
// answers a request may know of more, with which it ends, too.
package lasting

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
)

// Rights are what the user of a request needs a right to: what it is about and, to have its connection upgraded, to create the same. An
// upgraded connection may be a shell, and a request for one may be a GET.
func Rights(header http.Header, about authorizer.Attributes) []authorizer.Attributes {
	if about.GetVerb() == access.VerbUpgrade || !access.IsUpgrade(header) {
		return []authorizer.Attributes{about}
	}
	return []authorizer.Attributes{about, upgrading{about}}
}

// upgrading is the right to have a connection upgraded.
type upgrading struct{ authorizer.Attributes }

// GetVerb implements authorizer.Attributes.
func (upgrading) GetVerb() string { return access.VerbUpgrade }

// IsReadOnly implements authorizer.Attributes.
func (upgrading) IsReadOnly() bool { return false }

// OnHub are the rights that a request needs on the hub. Only what goes through a proxy is upgraded to whatever a cluster makes of it.
func OnHub(r *http.Request) ([]authorizer.Attributes, error) {
	about, err := filters.GetAuthorizerAttributes(r.Context())
	if err != nil {
		return nil, err
	}
	if about.GetSubresource() != fleet.SubresourceProxy {
		return []authorizer.Attributes{about}, nil
	}
	return Rights(r.Header, about), nil
}

// Handler refuses requests for upgrades that lack a right on the hub. It is behind the authorization of an API server, which knows of the
// first right of a request alone.
func Handler(next http.Handler, a authorizer.UnconditionalAuthorizer, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !access.IsUpgrade(r.Header) {
			next.ServeHTTP(w, r)
			return
		}
		rights, err := OnHub(r)
		if err != nil {
			responsewriters.InternalError(w, r, err)
			return
		}
		for _, right := range rights[1:] {
			decision, reason, err := a.Authorize(r.Context(), right)
			switch {
			case decision == authorizer.DecisionAllow:
			case err != nil:
				responsewriters.InternalError(w, r, err)
				return
			default:
				reason = strings.TrimSpace("a connection that is upgraded, as by exec, needs this right, too. " + reason)
				responsewriters.Forbidden(right, w, r, reason, codecs)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

type followerKey struct{}

// WithFollower returns the context of a request that lasts. While it is handled, follow is called with rights that it turns out to need
// besides, and ends it with each of these.
func WithFollower(ctx context.Context, follow func(authorizer.Attributes)) context.Context {
	return context.WithValue(ctx, followerKey{}, follow)
}

// Follow has the request of the context end with a right that its user has, unless it is one that is soon over.
func Follow(ctx context.Context, right authorizer.Attributes) {
	if follow, lasts := ctx.Value(followerKey{}).(func(authorizer.Attributes)); lasts {
		follow(right)
	}
}
