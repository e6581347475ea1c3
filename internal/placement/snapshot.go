package placement

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// snapshot is the fleet as the events so far have described it, and what placements have selected of it.
type snapshot struct {
	now            time.Time
	clusters       clusterCache
	clusterCount   int // number of ManagedClusters
	sets           map[string]*clusterSet
	bindings       map[string]sets.Set[string] // names of ManagedClusterSetBindings by namespace
	placements     map[Key]*placement
	orphans        map[Key]*placement // decisions whose placement does not exist; they count for Balance
	decisionCounts decisionCounts
	nextAdvance    time.Time // when the next toleration or score expires; zero is never
	trustDecisions bool      // as in Options
}

func newSnapshot(trustDecisions bool) *snapshot {
	return &snapshot{
		sets:           map[string]*clusterSet{},
		bindings:       map[string]sets.Set[string]{},
		placements:     map[Key]*placement{},
		orphans:        map[Key]*placement{},
		trustDecisions: trustDecisions,
	}
}
