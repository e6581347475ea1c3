package aggregated

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/lasting"
)

const (
	// rightInterval is how often the right to open requests is checked.
	rightInterval = 2 * time.Second
	// rightRate is how many rights are checked in a second at most, and as many further ones. Each of more than a hundred then waits for its
	// turn.
	rightRate = 50
)

// rights end long-running requests of users soon after the user has lost the right to them: the API server authorizes them when they
// start, and they may last for hours. While it does not answer, they go on.
type rights struct {
	api authorizer.UnconditionalAuthorizer
	// entering limits checks of rights that requests are authorized by. Those of further ones are limited apart: they may be many for each
	// user and cluster.
	entering, further *rate.Limiter

	mu sync.Mutex
	// inUse are the rights that open requests need.
	inUse map[string]*right
}

// right is what any number of open requests need, for which it is checked once.
type right struct {
	attributes authorizer.Attributes
	limiter    *rate.Limiter
	ctx        context.Context //nolint:containedctx // it ends with the right, or when nothing that needs it is open
	cancel     context.CancelCauseFunc
	requests   int
}

// newRights checks rights with an authorizer that caches nothing.
func newRights(api authorizer.UnconditionalAuthorizer) *rights {
	return &rights{api: api, entering: rate.NewLimiter(rightRate, 1), further: rate.NewLimiter(rightRate, 1), inUse: map[string]*right{}}
}

// handler passes requests on, and ends long-running ones of users with their right.
func (r *rights) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, _ := request.RequestInfoFrom(req.Context())
		if info == nil || !isLongRunningOfUser(info) {
			next.ServeHTTP(w, req)
			return
		}
		needed, err := lasting.OnHub(req)
		if err != nil || needed[0].GetUser() == nil {
			next.ServeHTTP(w, req)
			return
		}
		ctx, end := context.WithCancelCause(req.Context())
		defer end(nil)
		f := &followed{rights: r, end: end}
		defer f.release()
		for _, one := range needed {
			f.follow(one, r.entering) //nolint:contextcheck // that of a right is its own
		}
		further := func(one authorizer.Attributes) { f.follow(one, r.further) } //nolint:contextcheck // that of a right is its own
		next.ServeHTTP(w, req.WithContext(lasting.WithFollower(ctx, further)))
	})
}

// followed is a request that ends with any of the rights that it needs.
type followed struct {
	rights *rights
	end    context.CancelCauseFunc

	mu       sync.Mutex
	releases []context.CancelFunc
}

// follow ends the request with one more right, which is checked as often as the limiter lets it.
func (f *followed) follow(attributes authorizer.Attributes, limiter *rate.Limiter) {
	authorized, release := f.rights.acquire(attributes, limiter)
	stop := context.AfterFunc(authorized, func() { f.end(context.Cause(authorized)) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.releases = append(f.releases, func() {
		stop()
		release()
	})
}

// release is called when the request is over.
func (f *followed) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, release := range f.releases {
		release()
	}
}

// isLongRunningOfUser reports whether a request is a watch, or goes through a proxy or a forwarded port. The tunnel of an agent is none:
// every cluster has one, so to check their rights would take more than rightRate, and it ends with the acceptance and with the add-on.
func isLongRunningOfUser(info *request.RequestInfo) bool {
	return info.Verb == "watch" || info.Verb == "proxy" || info.Subresource == fleet.SubresourceProxy ||
		info.Subresource == fleet.SubresourcePortForward
}

// acquire returns a context that ends with the right, which is checked until all who have acquired it have released it. The cause of that
// end is the answer to a request that has none yet.
func (r *rights) acquire(attributes authorizer.Attributes, limiter *rate.Limiter) (authorized context.Context, release context.CancelFunc) {
	key := keyOf(attributes)
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.inUse[key]
	if one == nil {
		one = &right{attributes: attributes, limiter: limiter}
		one.ctx, one.cancel = context.WithCancelCause(context.Background())
		r.inUse[key] = one
		go r.poll(key, one)
	}
	one.requests++
	return one.ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if one.requests--; one.requests == 0 {
			r.remove(key, one, nil)
		}
	}
}

// poll checks a right until it is lost, or not needed any more.
func (r *rights) poll(key string, one *right) {
	for r.isAuthorized(one) {
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(key, one, responsewriters.ForbiddenStatusError(one.attributes, "the right to this request has been lost since it began"))
}

// remove ends the requests that need the right. Those of a user who has it again acquire another one.
func (r *rights) remove(key string, one *right, why error) {
	one.cancel(why)
	if r.inUse[key] == one {
		delete(r.inUse, key)
	}
}

// isAuthorized reports, after the interval, whether the user still has the right.
func (r *rights) isAuthorized(one *right) bool {
	select {
	case <-one.ctx.Done():
		return false
	case <-time.After(rightInterval):
	}
	if one.limiter.Wait(one.ctx) != nil {
		return false
	}
	decision, _, err := r.api.Authorize(one.ctx, one.attributes)
	return err != nil || decision == authorizer.DecisionAllow
}

// keyOf distinguishes rights by all attributes that RBAC decides by: not by the path, which differs from request to request.
func keyOf(a authorizer.Attributes) string {
	who := a.GetUser()
	byFields, _ := a.GetFieldSelector()
	byLabels, _ := a.GetLabelSelector()
	return fmt.Sprintf("%q", []any{who.GetName(), who.GetUID(), who.GetGroups(), who.GetExtra(), a.GetVerb(), a.GetNamespace(),
		a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetName(), byFields, byLabels})
}
