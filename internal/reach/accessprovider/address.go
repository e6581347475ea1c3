package accessprovider

import (
	"bytes"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Address is where clients reach the clusters of a hub. It is not known before it is published, and may change.
type Address struct {
	changed chan event.GenericEvent

	mu        sync.Mutex
	published bool
	url       string
	ca        []byte
}

// NewAddress returns one that is not known yet.
func NewAddress() *Address {
	return &Address{changed: make(chan event.GenericEvent, 1)}
}

// Publish tells the URL below which clusters are, and the certificates that verify it, in PEM; none if those of the machine of a client do.
func (a *Address) Publish(url string, ca []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.published && a.url == url && bytes.Equal(a.ca, ca) {
		return
	}
	a.published, a.url, a.ca = true, url, ca
	select {
	case a.changed <- event.GenericEvent{}:
	default: // who has not seen the change before will see both
	}
}

// get returns the address, if it is known.
func (a *Address) get() (url string, ca []byte, published bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.url, a.ca, a.published
}
