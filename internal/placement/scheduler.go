package placement

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

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
	// ExplainBudgets are those of Explain; nil for ones of its own. Schedulers may share them if only one of them is in use at a time.
	ExplainBudgets ExplainBudgets
	// Timer measures plugins that run for all clusters, for metrics; nil for none. A plugin that runs for one changed cluster is
	// not measured.
	Timer Timer
}

const defaultCachedCandidates = 4_000_000

// Scheduler takes the events of the API, selects clusters for placements, and says why. See the package comment.
type Scheduler struct {
	mu          sync.Mutex // guards all that follows
	snapshot    *snapshot
	framework   *framework
	evaluations *evaluations
	classes     *classCache
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

// has reports whether the placement has selected a cluster.
func (p *placement) has(c *cluster) bool { return slices.Contains(p.selected, c) }

// hasAny reports whether the placement has selected one of some clusters.
func (p *placement) hasAny(clusters map[*cluster]bool) bool {
	return slices.ContainsFunc(p.selected, func(c *cluster) bool { return clusters[c] })
}

// isMisconfigured reports whether the spec is invalid, or its CEL expressions exceed the budget.
func (p *placement) isMisconfigured() bool {
	return p.spec == nil || p.class != nil && p.class.overBudget()
}

// keepsDecisions reports whether the placement keeps what it has selected: it is misconfigured or pending.
func (p *placement) keepsDecisions() bool {
	return p.isMisconfigured() || p.class != nil && p.class.pending()
}

// New returns a scheduler of an empty fleet.
func New(options Options) *Scheduler {
	if options.CachedCandidates == 0 {
		options.CachedCandidates = defaultCachedCandidates
	}
	if options.ExplainBudgets == nil {
		options.ExplainBudgets = ExplainBudgets{}
	}
	s := &Scheduler{snapshot: newSnapshot(options.TrustDecisions)}
	s.framework = &framework{snapshot: s.snapshot, options: options}
	s.evaluations = &evaluations{celBudget: celBudget, queues: map[string]*evaluationQueue{}, explainQueues: options.ExplainBudgets}
	s.classes = &classCache{
		snapshot: s.snapshot, framework: s.framework, evaluations: s.evaluations,
		byKey: map[string]*equivalenceClass{}, limit: options.CachedCandidates,
	}
	return s
}

// affected is a set of placements that have to be scheduled again.
type affected sets.Set[Key]

func (a affected) add(p *placement) { a[p.key] = sets.Empty{} }

// keys returns the placements in no order; nil for none.
func (a affected) keys() []Key { return slices.Collect(maps.Keys(a)) }
