package accessprovider

import (
	"bytes"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Address is where clients reach the clusters of a hub. It is not known before it is published, and may change.
type Address struct {
	mu        sync.Mutex
	published bool
	url       string
	ca        []byte
	watchers  []chan event.GenericEvent
}

// NewAddress returns one that is not known yet.
func NewAddress() *Address { return &Address{} }

// Changes returns a channel with an event after each change.
func (a *Address) Changes() <-chan event.GenericEvent {
	changes := make(chan event.GenericEvent, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchers = append(a.watchers, changes)
	return changes
}

// Publish publishes the URL below which clusters are, and the certificates that verify it, in PEM; none if those of the machine of a client
// do.
func (a *Address) Publish(url string, ca []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.published && a.url == url && bytes.Equal(a.ca, ca) {
		return
	}
	a.published, a.url, a.ca = true, url, ca
	for _, changes := range a.watchers {
		select {
		case changes <- event.GenericEvent{}:
		default: // who has not seen the change before will see both
		}
	}
}

// Get returns the address, if it is known.
func (a *Address) Get() (url string, ca []byte, published bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.url, a.ca, a.published
}
