package placement

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/capstan-io/capstan/internal/placement/celselector"
)

// celBudget is what the CEL expressions of a placement may cost for all clusters together: seconds, in which all other
// placements wait. For 10,000 clusters it is enough for expressions that look at hundreds of claims each.
const celBudget = 2 * celconfig.RuntimeCELCostBudget

// matchChunk is how many words of a bitset one goroutine matches before it looks for more.
const matchChunk = 4

// matcher finds the members of the cluster sets that meet the predicates.
type matcher struct {
	*Scheduler
	selection  *selection
	considered bitset // those that may
	matched    bitset
	budget     *celselector.Budget

	taken atomic.Int64 // words of considered
}

// match finds the members of the cluster sets that meet the predicates, or that this costs too much.
func (s *Scheduler) match(st *standing, selection *selection) (next time.Time) {
	defer s.timed(PluginFilter, FilterPredicate)()
	m := &matcher{Scheduler: s, selection: selection, considered: s.consider(st, selection)}
	m.matched = make(bitset, len(m.considered))
	if selection.cel {
		defer s.timed(PluginCEL, "")()
		m.budget = celselector.NewBudget(s.celBudget)
		next = m.together()
	} else {
		next = m.words(0, len(m.considered))
	}
	st.matched, st.dear = m.matched, m.budget.Spent()
	return next
}

// consider leaves out members of the cluster sets that the indexes tell do not match.
func (s *Scheduler) consider(st *standing, selection *selection) bitset {
	lists, ok := selection.narrow(s.byLabel, s.byClaim, st.inSets.count())
	if !ok {
		return st.inSets
	}
	var considered bitset
	for _, list := range lists {
		for _, id := range list {
			if st.inSets.has(id) {
				considered.set(id)
			}
		}
	}
	return considered
}

// together matches on all processors.
func (m *matcher) together() (next time.Time) {
	var group sync.WaitGroup
	times := make([]time.Time, min(runtime.GOMAXPROCS(0), len(m.considered)/matchChunk+1))
	for i := range times {
		group.Go(func() {
			for !m.budget.Spent() {
				to := int(m.taken.Add(matchChunk))
				if to-matchChunk >= len(m.considered) {
					return
				}
				times[i] = earliest(times[i], m.words(to-matchChunk, min(to, len(m.considered))))
			}
		})
	}
	group.Wait()
	for _, t := range times {
		next = earliest(next, t)
	}
	return next
}

// words matches the clusters of some words of the set, and returns when time changes that.
func (m *matcher) words(from, to int) (next time.Time) {
	for offset := range m.considered[from:to].all() {
		if m.budget.Spent() {
			return next
		}
		id := int32(from<<6) + offset
		c := m.fleet.clusters[id]
		next = earliest(next, m.selection.deadline(c, m.now))
		m.matched.put(id, m.selection.match(c, m.now, m.budget))
	}
	return next
}
