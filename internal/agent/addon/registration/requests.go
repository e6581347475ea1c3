package registration

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
)

// id names a Secret.
type id struct{ addOn, cluster, namespace, name string }

func (w *desiredSecret) id() id { return id{w.addOn, w.cluster, w.secret.Namespace, w.secret.Name} }

// requests are the requests for certificates that the hub has not decided upon. Each has a goroutine and a watch while it
// waits, which is mostly a moment and at worst a day. They are a Source of the controller.
type requests struct {
	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // that of the source, which ends all requests
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	waiting map[id]*request
}

type request struct {
	addOn     *clientcert.AddOn
	notBefore time.Time
	end       context.CancelFunc
	done      bool
	obtained  obtained
}

// isFor reports whether the request is the one that would be made.
func (r *request) isFor(requester *clientcert.Requester) bool {
	return r.addOn.SignerName == requester.AddOn.SignerName && clientcert.SameSubject(r.addOn.Subject, requester.AddOn.Subject) &&
		r.notBefore.Equal(requester.NotBefore)
}

// obtained is a certificate with its key, in PEM, or why there is none.
type obtained struct {
	certificate, key []byte
	err              error
}

// Start is called by the controller before it reconciles.
func (r *requests) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctx, r.queue, r.waiting = ctx, queue, map[id]*request{}
	return nil
}

// obtain returns the result of the request for a Secret, once; nil as long as there is none. It makes the request if it is not
// in progress, and ends the one for another certificate, or from before the hub cut the cluster off. When it is decided upon, the owner is
// reconciled.
func (r *requests) obtain(of id, owner reconcile.Request, requester *clientcert.Requester) *obtained {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.waiting[of]; now != nil {
		if now.isFor(requester) {
			if !now.done {
				return nil
			}
			delete(r.waiting, of)
			return &now.obtained
		}
		now.end()
	}
	ctx, end := context.WithCancel(r.ctx)
	next := &request{addOn: requester.AddOn, notBefore: requester.NotBefore, end: end}
	r.waiting[of] = next
	go func() {
		defer end()
		certificate, key, err := requester.Request(ctx)
		r.mu.Lock()
		next.obtained, next.done = obtained{certificate, key, err}, true
		r.mu.Unlock()
		r.queue.Add(owner)
	}()
	return nil
}

// drop ends the request for a Secret, if there is one.
func (r *requests) drop(of id) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.waiting[of]; now != nil {
		now.end()
		delete(r.waiting, of)
	}
}
