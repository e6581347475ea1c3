package installation

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// hosted are the add-ons whose agents run on other clusters, as their last passes have found them: the first ones after a start find
// all of them. Only the add-on itself can tell which cluster that is, so no index of the cache can.
type hosted struct {
	mu sync.Mutex
	on map[types.NamespacedName]string
}

// note takes in on which cluster an add-on is hosted; empty is on none.
func (h *hosted) note(addOn types.NamespacedName, cluster string) {
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

// by are the add-ons that a cluster hosts.
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
