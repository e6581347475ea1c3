package installation

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// hosted maps the add-ons in hosted mode to their hosting clusters. Each pass over an add-on records its own; after a start, the first
// passes fill the map. An index of the cache cannot do this, because only the add-on's code knows the cluster.
type hosted struct {
	mu sync.Mutex
	on map[types.NamespacedName]string
}

// set records the hosting cluster of an add-on; an empty name means none.
func (h *hosted) set(addOn types.NamespacedName, cluster string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cluster == "" {
		delete(h.on, addOn)
		return
	}
	if h.on == nil {
		h.on = map[types.NamespacedName]string{}
	}
	h.on[addOn] = cluster
}

// by returns the add-ons that a cluster hosts.
func (h *hosted) by(cluster string) (requests []reconcile.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for addOn, on := range h.on {
		if on == cluster {
			requests = append(requests, reconcile.Request{NamespacedName: addOn})
		}
	}
	return requests
}
