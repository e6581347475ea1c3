package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// After any events, a scheduler has the same results as one that starts with the present objects; and a placement
// that an event did not return as affected has the same result as before the event. Events that make decisions of other writers
// eligible change Balance, for which alone no placement is scheduled.
func TestIncrementalEqualsFull(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]Options{
		"by name":    {},
		"by hash":    {TieBreak: TieBreakHash},
		"forgetting": {CachedCandidates: 20},
	} {
		for seed := range uint64(5) {
			for _, trusting := range []bool{false, true} {
				options := options
				options.TrustDecisions = trusting
				t.Run(fmt.Sprintf("%s %d, trusting %t", name, seed, trusting), func(t *testing.T) {
					t.Parallel()
					runRandomEvents(t, rand.New(rand.NewPCG(seed, 1)), options)
				})
			}
		}
	}
}

func runRandomEvents(t *testing.T, r *rand.Rand, options Options) {
	w := newTestFleet()
	s := w.scheduler(options)
	var history []string
	for range 250 {
		before := w.clone()
		event, affected := w.randomEvent(r, s)
		for _, key := range affected { // as the controller does
			if !s.Manages(key) {
				s.Restore(key, listed(w.decisions[key]...))
			}
		}
		affected = append(affected, evaluateAll(s)...)
		history = append(history, event)
		then, now := before.scheduler(options), w.scheduler(options)
		for key := range w.placements {
			followed, fresh := dryRun(s, key), dryRun(now, key)
			if diff := cmp.Diff(fresh, followed); diff != "" {
				t.Fatalf("after %d events, the last of which are %q, %s is decided otherwise than from scratch:\n%s",
					len(history), history[max(0, len(history)-5):], key, diff)
			}
			if diff := cmp.Diff(written(dryRun(then, key)), written(fresh)); options.TrustDecisions && diff != "" &&
				!slices.Contains(affected, key) {
				t.Fatalf("after %d events, %q changes %s, but does not say so:\n%s", len(history), event, key, diff)
			}
		}
		for _, key := range sortedKeys(affected) {
			if result, ok := s.Schedule(key); ok && !result.Disabled {
				w.decisions[key] = clusters(result)
			}
		}
	}
}

// dryRun returns the result of a placement with all expressions evaluated, and records no decision.
func dryRun(s *Scheduler, key Key) *Result {
	p := s.snapshot.placements[key]
	if p == nil {
		return nil
	}
	if p.disabled {
		return &Result{Disabled: true, Misconfigured: p.misconfiguration}
	}
	if p.spec == nil { // its groups are not those of the decisions that a new scheduler starts with
		kept, _ := s.runCycle(p)
		return &Result{Misconfigured: p.misconfiguration, Groups: listed(clusters(kept)...)}
	}
	s.runCycle(p)
	evaluateAll(s)
	result, _ := s.runCycle(p)
	return result
}

// written returns what the API shows of a result. A placement is affected by an event if this changes.
func written(result *Result) *Result {
	if result == nil {
		return nil
	}
	return &Result{Groups: result.Groups, Selected: result.Selected, Satisfied: result.Satisfied,
		Disabled: result.Disabled, Misconfigured: result.Misconfigured}
}

func clusters(result *Result) []string {
	var names []string
	for _, group := range result.Groups {
		for _, decision := range group.Decisions {
			names = append(names, decision.ClusterName)
		}
	}
	return names
}
