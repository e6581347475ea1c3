package placement

import (
	"slices"
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
	// TieBreakName selects clusters in the order of their names. It is the default.
	TieBreakName TieBreak = "Name"
	// TieBreakHash selects clusters in the order of a hash of placement and cluster, so that placements that select a few of many
	// equal clusters do not all select the same ones.
	TieBreakHash TieBreak = "Hash"
)

// Options configure a Scheduler.
type Options struct {
	// TieBreak is TieBreakName by default.
	TieBreak TieBreak
	// CachedCandidates bounds the cache: it is how many candidates all equivalence classes have together, at about 24 bytes
	// each. Beyond it, those of the least recently used classes are discarded. 4,000,000 by default.
	CachedCandidates int
	// TrustDecisions makes all decisions of other writers count for Balance, as the hub acts on them.
	TrustDecisions bool
	// Timer measures plugins that run for all clusters, for metrics; nil for none. A plugin that runs for one changed cluster is
	// not measured.
	Timer Timer
}

const defaultCachedCandidates = 4_000_000

// Scheduler keeps a snapshot of the fleet, and selects clusters for placements. See the package comment.
type Scheduler struct {
	options   Options
	celBudget int64

	mu             sync.Mutex
	now            time.Time
	nextAdvance    time.Time // when the next toleration or score expires; zero is never
	clusters       clusterCache
	clusterCount   int // number of ManagedClusters
	decisionCounts decisionCounts
	sets           map[string]*clusterSet
	namespaces     map[string]*namespace
	placements     map[Key]*placement
	orphans        map[Key]*placement // decisions whose placement does not exist; they count for Balance
	classes        map[string]*equivalenceClass
	// queues has the CEL evaluations of each namespace, explainQueues those of explanations, which have a budget of their own.
	// budgetTime is the time up to which budgets were refilled.
	queues           map[string]*evaluationQueue
	explainQueues    map[string]*evaluationQueue
	budgetTime       time.Time
	profiles         map[string]*profile
	cachedCandidates int   // of all classes together
	useCount         int64 // counts calls of candidatesOf, for evict
}

// placement is what the scheduler knows of a Placement.
type placement struct {
	key              Key
	hash             uint64 // of the key, for TieBreakHash
	object           *clusterv1beta1.Placement
	disabled         bool        // by annotation: another writer decides
	spec             *parsedSpec // nil when misconfigured
	misconfiguration *Misconfiguration
	class            *equivalenceClass // nil when misconfigured or without a cluster set

	scheduled bool          // at least once since it exists and is not disabled
	selected  []*cluster    // group by group
	groups    []groupRecord // how they are divided into groups; nil for one group without a name
}

// groupRecord is the name and the size of a decision group.
type groupRecord struct {
	name string
	size int
}

// update replaces the object. The spec is parsed by reparse.
func (p *placement) update(object *clusterv1beta1.Placement) {
	p.object = object
	if p.disabled = object.Annotations[fleet.AnnotationSchedulingDisable] == fleet.LabelTrue; p.disabled {
		p.scheduled = false
	}
}

// has tells whether the placement has selected a cluster.
func (p *placement) has(c *cluster) bool { return slices.Contains(p.selected, c) }

// isMisconfigured tells whether the spec is invalid, or its CEL expressions exceed the budget.
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

// affected is a set of placements that have to be scheduled again.
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
