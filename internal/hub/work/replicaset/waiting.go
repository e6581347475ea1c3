package replicaset

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// waiting are the sets that would have works on clusters to which nothing may be brought now, as their last passes have found them: the
// first ones after a start find all of them.
type waiting struct {
	mu       sync.Mutex
	clusters map[types.NamespacedName]map[string]bool
}

// note takes in which clusters a set waits for.
func (w *waiting) note(set types.NamespacedName, which ...map[string]bool) {
	all := map[string]bool{}
	for _, some := range which {
		for cluster := range some {
			all[cluster] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(all) == 0 {
		delete(w.clusters, set)
		return
	}
	if w.clusters == nil {
		w.clusters = map[types.NamespacedName]map[string]bool{}
	}
	w.clusters[set] = all
}

// on are the sets that wait for a cluster.
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
