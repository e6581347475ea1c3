// Package brokerapi is the API of a hub, as far as the agent of one cluster uses it, where the agent reaches a broker by gRPC and not the
// API server: the transport of a client configuration.
//
// What is read comes from a store in memory, which a subscription for each kind fills and keeps current. What is written becomes an event,
// and the answer is that of the broker. What the broker has accepted is in the store at once, so that clients with a cache see their own
// writes; what the hub makes of it follows by the subscription, and has the last word.
//
// Resource versions are the store's own. They count up with every change of any kind, and have no meaning to the hub: a write has the
// version that the hub gave to the object that it is based on.
package brokerapi

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/keymutex"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

// Broker carries events between the agent and the hub.
type Broker interface {
	// Publish sends an event, and returns what the broker says of it, as an error of gRPC.
	Publish(ctx context.Context, event *cloudevents.Event) error
	// Subscribe returns when the broker sends all events of a data type that are for a cluster.
	Subscribe(ctx context.Context, cluster string, dataType cloudevents.DataType) (cloudevents.Subscription, error)
}

// Options configure an API.
type Options struct {
	Broker Broker
	// Address is where the broker is, for messages and as the host of client configurations.
	Address string
	// Cluster is the one whose objects the API has.
	Cluster string
	// Source is who the agent is to the broker.
	Source string
	// NamesSources reports whether events of works say who sent them, by [cloudevents.ExtensionOriginalSource]: there may be several sources.
	NamesSources bool
	Clock        clock.WithTicker
}

// API serves requests until its context ends. It is an http.RoundTripper.
type API struct {
	Options
	ctx         context.Context
	collections map[string]*collection // by resource
	events      *recorded
	sequence    sequence
	versions    atomic.Int64
	writing     keymutex.KeyMutex
}

// New returns an API. It subscribes to a kind when that is used for the first time.
func New(ctx context.Context, o Options) *API {
	a := &API{Options: o, ctx: ctx, collections: map[string]*collection{}, events: newRecorded(), writing: keymutex.NewHashed(writeLocks)}
	a.versions.Store(1)
	a.sequence.now = o.Clock.Now
	for i := range kinds {
		if kinds[i].stored {
			a.collections[kinds[i].resource] = newCollection(a, &kinds[i])
		}
	}
	return a
}

// Config returns how clients use the API.
func (a *API) Config() *rest.Config {
	return &rest.Config{Host: a.Address, Transport: a, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: mediaType, AcceptContentTypes: mediaType}}
}

// RoundTrip implements http.RoundTripper.
func (a *API) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	if a.ctx.Err() != nil {
		return nil, fmt.Errorf("the connection to the hub %s has ended: %w", a.Address, a.ctx.Err())
	}
	r, err := parseRequest(req)
	if err != nil {
		return failure(req, err), nil
	}
	answer, err := a.serve(r) //nolint:contextcheck // the request has it
	if err != nil {
		if req.Context().Err() != nil {
			return nil, req.Context().Err()
		}
		return failure(req, r.apiError(err)), nil
	}
	return answer, nil
}

func (a *API) serve(r *request) (*http.Response, error) {
	if err := a.check(r); err != nil {
		return nil, err
	}
	switch {
	case r.kind.resource == resourceServiceAccounts:
		return a.requestToken(r)
	case r.kind.resource == resourceEvents && r.Method == http.MethodPost:
		return a.createEvent(r)
	case r.kind.resource == resourceEvents:
		return a.patchEvent(r)
	}
	c := a.collections[r.kind.resource]
	switch r.Method {
	case http.MethodGet:
		return c.read(r)
	case http.MethodPost:
		return a.create(r, c)
	default:
		return a.update(r, c)
	}
}

// check refuses what cannot be done by events, and what is about other clusters.
func (a *API) check(r *request) error {
	method := r.Method
	if method == http.MethodPut {
		method = http.MethodPatch
	}
	if !r.kind.allows[method+" "+r.subresource] {
		return r.unsupported()
	}
	// Lists of all namespaces are those of one.
	if r.kind.namespaced && r.namespace != a.Cluster && (r.namespace != "" || r.Method != http.MethodGet) {
		return r.elsewhere(a.Cluster)
	}
	return nil
}

// publish sends an event, and returns the answer of the broker as an error of the API.
func (a *API) publish(ctx context.Context, event *cloudevents.Event) error {
	return a.Broker.Publish(ctx, event)
}

// HasAnswered reports whether a source of works counts as having said which it has, so that what is missing is gone, and whether it has
// said so itself. One that has not may be away, and is asked again soon. It may as well have no works: sources of the SDK do not answer
// then. So one that has been silent for the given time, and long enough to answer, counts as having answered.
func (a *API) HasAnswered(source string, patience time.Duration) (counts, itself bool) {
	c := a.collections[resourceWorks]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered[source] {
		return true, true
	}
	if !c.withoutWorks[source] && c.isSilentFor(source, max(patience, minSilence)) {
		c.withoutWorks[source] = true
	}
	if !c.withoutWorks[source] {
		c.askAgain(source)
	}
	return c.withoutWorks[source], false
}

// wake has collections whose subscription waits for its next attempt make it now: another has just succeeded.
func (a *API) wake() {
	for _, c := range a.collections {
		c.mu.Lock()
		if c.started && !c.live {
			c.retryNow()
		}
		c.mu.Unlock()
	}
}

// writeLocks is how many writes can go on at once, if no two objects share a lock. Of those that an agent has, few do.
const writeLocks = 1024

// lockWrites has other writes of an object wait until it is unlocked. A write locks one object at most: another may share its lock.
func (a *API) lockWrites(resource string, key types.NamespacedName) (unlock func()) {
	id := resource + "/" + key.String()
	a.writing.LockKey(id)
	return func() { _ = a.writing.UnlockKey(id) }
}
