package placement

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Key is the namespace and name of a Placement.
type Key = types.NamespacedName

// TieBreak orders clusters of equal scores.
type TieBreak string

const (
	// TieBreakName takes those first whose names come first. It is the default.
	TieBreakName TieBreak = "Name"
	// TieBreakHash takes them by a hash of placement and cluster, so that placements that select few of many equal
	// clusters do not all select the same.
	TieBreakHash TieBreak = "Hash"
)

// Options of a scheduler.
type Options struct {
	// TieBreak is TieBreakName by default.
	TieBreak TieBreak
	// CachedCandidates bounds the memory of the scheduler: how many candidates, summed up over the classes of
	// placements, it remembers between two schedules, at about 24 bytes each. Classes used least recently are built
	// anew when they are needed. 4,000,000 by default.
	CachedCandidates int
	// TrustDecisions says that the hub acts on whatever others decide, and so that it all counts for Balance.
	TrustDecisions bool
	// Timer watches the plugins at work on all clusters at once, for metrics; nil for none. What they do about one cluster
	// that has changed is not worth it.
	Timer Timer
}

const defaultCachedCandidates = 4_000_000

// Scheduler is a model of the fleet that selects clusters for placements. See the package comment.
type Scheduler struct {
	options   Options
	celBudget int64

	mu             sync.Mutex
	now            time.Time
	nextAdvance    time.Time // before it, time changes nothing; zero is never
	clusters       clusterCache
	clusterCount   int // ManagedClusters
	byLabel        labelIndex
	byClaim        labelIndex
	decisionCounts decisionCounts
	sets           map[string]*clusterSet
	namespaces     map[string]*namespace
	placements     map[Key]*placement
	orphans        map[Key]*placement // decisions of no placement that is known, which count for Balance
	classes        map[string]*equivalenceClass
	// queues are those of namespaces with CEL expressions, and explanations what it costs to explain such placements. charged is the
	// last time at which somebody paid.
	queues           map[string]*evaluationQueue
	explainQueues    map[string]*evaluationQueue
	budgetTime       time.Time
	profiles         map[string]*profile
	cachedCandidates int   // candidates of all standings
	useCount         int64 // of classes, for evicting
	buffers          cycleBuffers
}

// placement is what the scheduler knows of a Placement.
type placement struct {
	key              Key
	hash             uint64 // of the key, for TieBreakHash
	object           *clusterv1beta1.Placement
	disabled         bool        // by annotation: another scheduler decides
	spec             *parsedSpec // nil when misconfigured
	misconfiguration *Misconfiguration
	class            *equivalenceClass // nil when misconfigured or without a cluster set

	scheduled bool          // since it was last not disabled; until then, others decide
	ids       []int32       // of the clusters selected, group by group
	decided   bitset        // the same
	groups    []groupRecord // the groups that ids are divided into; nil when they are one without a name
}

// groupRecord is a decision group as it is remembered.
type groupRecord struct {
	name string
	size int
}

// update takes over what an object says, but for its spec.
func (p *placement) update(object *clusterv1beta1.Placement) {
	p.object = object
	if p.disabled = object.Annotations[fleet.AnnotationSchedulingDisable] == fleet.LabelTrue; p.disabled {
		p.scheduled = false
	}
}

// isMisconfigured tells whether the placement was misconfigured when it was last looked at.
func (p *placement) isMisconfigured() bool {
	return p.spec == nil || p.class != nil && p.class.overBudget()
}

// New returns a scheduler of an empty fleet.
func New(options Options) *Scheduler {
	if options.CachedCandidates == 0 {
		options.CachedCandidates = defaultCachedCandidates
	}
	return &Scheduler{
		options:       options,
		celBudget:     celBudget,
		clusters:      clusterCache{idByName: map[string]int32{}},
		byLabel:       labelIndex{},
		byClaim:       labelIndex{},
		sets:          map[string]*clusterSet{},
		namespaces:    map[string]*namespace{},
		placements:    map[Key]*placement{},
		orphans:       map[Key]*placement{},
		classes:       map[string]*equivalenceClass{},
		queues:        map[string]*evaluationQueue{},
		explainQueues: map[string]*evaluationQueue{},
		profiles:      map[string]*profile{},
	}
}

// affected collects placements.
type affected map[Key]struct{}

func (a affected) add(p *placement) { a[p.key] = struct{}{} }

func (a affected) keys() []Key {
	if len(a) == 0 {
		return nil
	}
	keys := make([]Key, 0, len(a))
	for key := range a {
		keys = append(keys, key)
	}
	return keys
}
