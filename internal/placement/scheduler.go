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

	mu         sync.Mutex
	now        time.Time
	next       time.Time // before it, time changes nothing; zero is never
	fleet      roster
	existing   int // ManagedClusters
	byLabel    index
	byClaim    index
	load       load
	sets       map[string]*clusterSet
	namespaces map[string]*namespace
	placements map[Key]*placement
	strays     map[Key]*placement // decisions of no placement that is known, which count for Balance
	classes    map[string]*class
	// turns are those of namespaces with CEL expressions, and explanations what it costs to explain such placements. charged is the
	// last time at which somebody paid.
	turns        map[string]*turns
	explanations map[string]*turns
	charged      time.Time
	selections   map[string]*selection
	cached       int   // candidates of all standings
	uses         int64 // of classes, for evicting
	scratch      scratch
}

// placement is what the scheduler knows of a Placement.
type placement struct {
	key      Key
	hash     uint64 // of the key, for TieBreakHash
	object   *clusterv1beta1.Placement
	disabled bool  // by annotation: another scheduler decides
	plan     *plan // nil when misconfigured
	bad      *Misconfiguration
	class    *class // nil when misconfigured or without a cluster set

	scheduled bool    // since it was last not disabled; until then, others decide
	ids       []int32 // of the clusters selected, group by group
	decided   bitset  // the same
	parts     []part  // the groups that ids are divided into; nil when they are one without a name
}

// part is a decision group as it is remembered.
type part struct {
	name string
	size int
}

// take takes over what an object says, but for its spec.
func (p *placement) take(object *clusterv1beta1.Placement) {
	p.object = object
	if p.disabled = object.Annotations[fleet.AnnotationSchedulingDisable] == fleet.LabelTrue; p.disabled {
		p.scheduled = false
	}
}

// isBroken tells whether the placement was misconfigured when it was last looked at.
func (p *placement) isBroken() bool {
	return p.plan == nil || p.class != nil && p.class.tooDear()
}

// New returns a scheduler of an empty fleet.
func New(options Options) *Scheduler {
	if options.CachedCandidates == 0 {
		options.CachedCandidates = defaultCachedCandidates
	}
	return &Scheduler{
		options:      options,
		celBudget:    celBudget,
		fleet:        roster{ids: map[string]int32{}},
		byLabel:      index{},
		byClaim:      index{},
		sets:         map[string]*clusterSet{},
		namespaces:   map[string]*namespace{},
		placements:   map[Key]*placement{},
		strays:       map[Key]*placement{},
		classes:      map[string]*class{},
		turns:        map[string]*turns{},
		explanations: map[string]*turns{},
		selections:   map[string]*selection{},
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
