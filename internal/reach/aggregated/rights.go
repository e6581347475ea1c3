package aggregated

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	// recheckInterval is how often it is checked whether requests that are open for long may go on.
	recheckInterval = 2 * time.Second
	// recheckRate is how many rights the API server is asked about in a second at most. Each of more than a hundred then waits for its turn.
	recheckRate = 50
)

// rights end watches, and what goes through a proxy or a forwarded port, soon after the user has lost the right to them: they may last for
// hours, and the API server is asked when they begin. While it cannot be asked, they go on.
type rights struct {
	api   authorizer.UnconditionalAuthorizer
	turns *rate.Limiter

	mu   sync.Mutex
	held map[string]*right
}

// right is what any number of open requests need, for which it is checked once.
type right struct {
	attributes authorizer.Attributes
	ctx        context.Context //nolint:containedctx // it ends with the right, or when nothing that needs it is open
	end        context.CancelFunc
	requests   int
}

// newRights asks an authorizer that remembers nothing.
func newRights(api authorizer.UnconditionalAuthorizer) *rights {
	return &rights{api: api, turns: rate.NewLimiter(recheckRate, 1), held: map[string]*right{}}
}

// handler hands requests on, and ends those that may last with their right.
func (r *rights) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, _ := request.RequestInfoFrom(req.Context())
		if info == nil || !mayLast(info) {
			next.ServeHTTP(w, req)
			return
		}
		attributes, err := filters.GetAuthorizerAttributes(req.Context())
		if err != nil || attributes.GetUser() == nil {
			next.ServeHTTP(w, req)
			return
		}
		held, release := r.hold(attributes)
		defer release()
		ctx, end := context.WithCancel(req.Context())
		defer end()
		defer context.AfterFunc(held, end)() //nolint:contextcheck // it is that of the right
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

// mayLast tells whether a request may be open for long.
func mayLast(info *request.RequestInfo) bool {
	return info.Verb == "watch" || info.Verb == "proxy" || info.Subresource == "proxy" || info.Subresource == fleet.SubresourcePortForward
}

// hold returns a context that ends with the right, which is checked until all who hold it have released it.
func (r *rights) hold(attributes authorizer.Attributes) (held context.Context, release context.CancelFunc) {
	key := keyOf(attributes)
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.held[key]
	if one == nil {
		one = &right{attributes: attributes}
		one.ctx, one.end = context.WithCancel(context.Background())
		r.held[key] = one
		go r.recheck(key, one)
	}
	one.requests++
	return one.ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if one.requests--; one.requests == 0 {
			r.drop(key, one)
		}
	}
}

// recheck checks a right until it is lost, or not needed any more.
func (r *rights) recheck(key string, one *right) {
	for r.mayGoOn(one) {
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(key, one)
}

// drop ends what is held. Who has the right again holds another one.
func (r *rights) drop(key string, one *right) {
	one.end()
	if r.held[key] == one {
		delete(r.held, key)
	}
}

// mayGoOn tells, after the interval, whether the right is still there.
func (r *rights) mayGoOn(one *right) bool {
	select {
	case <-one.ctx.Done():
		return false
	case <-time.After(recheckInterval):
	}
	if r.turns.Wait(one.ctx) != nil {
		return false
	}
	decision, _, err := r.api.Authorize(one.ctx, one.attributes)
	return err != nil || decision == authorizer.DecisionAllow
}

// keyOf tells rights from each other by all that the API server is asked: not by the path, which differs from request to request.
func keyOf(a authorizer.Attributes) string {
	who := a.GetUser()
	byFields, _ := a.GetFieldSelector()
	byLabels, _ := a.GetLabelSelector()
	return fmt.Sprintf("%q", []any{who.GetName(), who.GetUID(), who.GetGroups(), who.GetExtra(), a.GetVerb(), a.GetNamespace(),
		a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetName(), byFields, byLabels})
}
