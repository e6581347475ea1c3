package replicaset

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// waiting maps sets to the clusters that cannot get their works now. Each pass over a set records its own; after a start, the first
// passes fill the map.
type waiting struct {
	mu       sync.Mutex
	clusters map[types.NamespacedName]map[string]bool
}

// set records the clusters that a set waits for.
func (w *waiting) set(name types.NamespacedName, which ...map[string]bool) {
	all := map[string]bool{}
	for _, some := range which {
		for cluster := range some {
			all[cluster] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(all) == 0 {
		delete(w.clusters, name)
		return
	}
	if w.clusters == nil {
		w.clusters = map[types.NamespacedName]map[string]bool{}
	}
	w.clusters[name] = all
}

// on returns the sets that wait for a cluster.
func (w *waiting) on(cluster string) (requests []reconcile.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for set, awaited := range w.clusters {
		if awaited[cluster] {
			requests = append(requests, reconcile.Request{NamespacedName: set})
		}
	}
	return requests
}
