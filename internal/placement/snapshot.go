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
	bindings       index[string] // names of ManagedClusterSetBindings by namespace
	bound          index[string] // namespaces by the name of a ManagedClusterSetBinding
	placements     map[Key]*placement
	placementsIn   index[*placement]  // by namespace
	orphans        map[Key]*placement // decisions whose placement does not exist; they count for Balance
	unmanaged      index[Key]         // orphans and disabled placements, by namespace
	decisionCounts decisionCounts
	nextAdvance    time.Time // when the next toleration or score expires; zero is never
	trustDecisions bool      // as in Options
}

func newSnapshot(trustDecisions bool) *snapshot {
	return &snapshot{
		clusters:       clusterCache{byName: map[string]*cluster{}},
		sets:           map[string]*clusterSet{},
		bindings:       index[string]{},
		bound:          index[string]{},
		placements:     map[Key]*placement{},
		placementsIn:   index[*placement]{},
		orphans:        map[Key]*placement{},
		unmanaged:      index[Key]{},
		trustDecisions: trustDecisions,
	}
}

// index has sets of values by name. Names without values are not in it.
type index[V comparable] map[string]sets.Set[V]

// set adds a value to those of a name, or removes it.
func (i index[V]) set(name string, value V, exists bool) {
	switch values := i[name]; {
	case !exists:
		if values.Delete(value); len(values) == 0 {
			delete(i, name)
		}
	case values == nil:
		i[name] = sets.New(value)
	default:
		values.Insert(value)
	}
}
