package aggregated

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// recheckInterval is how often it is checked whether a request that is open for long may go on. What the API server has said counts for ten
// seconds more.
const recheckInterval = 10 * time.Second

// whileAuthorized ends watches, and what goes through a proxy or a forwarded port, within half a minute when the user has lost the right to
// them: they may last for hours, and the API server is asked when they begin. While it cannot be asked, they go on.
func whileAuthorized(next http.Handler, rights authorizer.UnconditionalAuthorizer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, _ := request.RequestInfoFrom(r.Context())
		if info == nil || !mayLast(info) {
			next.ServeHTTP(w, r)
			return
		}
		attributes, err := filters.GetAuthorizerAttributes(r.Context())
		if err != nil {
			next.ServeHTTP(w, r)
			return
		}
		ctx, end := context.WithCancel(r.Context())
		defer end()
		go func() {
			defer end()
			for mayGoOn(ctx, rights, attributes) {
			}
		}()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// mayLast tells whether a request may be open for long.
func mayLast(info *request.RequestInfo) bool {
	return info.Verb == "watch" || info.Verb == "proxy" || info.Subresource == "proxy" || info.Subresource == fleet.SubresourcePortForward
}

// mayGoOn tells, after the interval, whether the right is still there; it is not needed any more when ctx ends.
func mayGoOn(ctx context.Context, rights authorizer.UnconditionalAuthorizer, attributes authorizer.Attributes) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(recheckInterval):
	}
	decision, _, err := rights.Authorize(ctx, attributes)
	return err != nil || decision == authorizer.DecisionAllow
}
