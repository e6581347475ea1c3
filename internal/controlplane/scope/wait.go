package scope

import (
	"context"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Wait has agents and add-ons wait at the door until a hub that has just started knows whom to refuse: inside, those that wait would take
// from administrators the number of requests that the API server handles at a time. If the start takes long, they are to retry instead.
type Wait struct {
	// known are closed, each of them, when the hub knows.
	known []<-chan struct{}
	// over is closed when nobody waits any longer.
	over chan struct{}
	// End has all who wait, and those to come, retry later until the hub knows.
	End func()
}

// NewWait is for a hub that refuses by these.
func NewWait(cutOff *CutOff, credentials *Credentials, suspension *Suspension) *Wait {
	over := make(chan struct{})
	cutOff.over, suspension.over = over, over
	return &Wait{
		known: []<-chan struct{}{cutOff.known, credentials.known, suspension.known},
		over:  over,
		End:   sync.OnceFunc(func() { close(over) }),
	}
}

// Handler hands on what does not have to wait. who authenticates requests, again when they are handed on.
func (w *Wait) Handler(next http.Handler, who authenticator.Request, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		if !w.knows() && isOfCluster(r, who) && !w.await(r.Context()) {
			retryLater(answer, r, codecs, "This hub has just started, and does not know yet whom to refuse")
			return
		}
		next.ServeHTTP(answer, r)
	})
}

func (w *Wait) knows() bool {
	for _, known := range w.known {
		if !isClosed(known) {
			return false
		}
	}
	return true
}

func (w *Wait) await(ctx context.Context) bool {
	for _, known := range w.known {
		if !await(ctx, known, w.over) {
			return false
		}
	}
	return true
}

// await reports whether known is closed, and waits for that until over is, or the context ends.
func await(ctx context.Context, known, over <-chan struct{}) bool {
	select {
	case <-known:
	case <-over:
	case <-ctx.Done():
	}
	return isClosed(known)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

type identityKey struct{}

// asksWho reports whether nothing but the identity of a sender is asked for.
func asksWho(ctx context.Context) bool { return ctx.Value(identityKey{}) != nil }

// isOfCluster reports whether a request is of an agent or add-on, with whatever credential.
func isOfCluster(r *http.Request, who authenticator.Request) bool {
	response, ok, err := who.AuthenticateRequest(r.Clone(context.WithValue(r.Context(), identityKey{}, true)))
	return err == nil && ok && len(fleet.ClustersBehind(response.User.GetName(), response.User.GetGroups())) > 0
}
