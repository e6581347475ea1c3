package replicaset

import (
	"time"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/clustererrors"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/rollout"
)

// situation is a set and all that belongs to it, as of now.
type situation struct {
	set *workv1alpha1.ManifestWorkReplicaSet
	// template is what is rolled out: that of the set, or one that it had before.
	template   *workv1.ManifestWorkSpec
	placements []*placement
	// loose are works that belong to none of the placements, or to one that has another work on the cluster.
	loose []*work
	now   time.Time
	// next is when to look again even if nothing happens. Zero is never.
	next time.Time
	// history is there if the set is to be rolled back when it fails; rollback tells that it was, and warning that it
	// cannot be. held lets no cluster begin, and again is why a template could not be read or kept that may be the next time.
	history           history
	rollback, warning string
	held              bool
	again             error
	// renderer is set if the set has overrides. unfit has the errors of clusters whose spec cannot be rendered or written.
	renderer *renderer
	pass     *pass
	unfit    clustererrors.Errors
}

// placement is a placement of the set, and its works.
type placement struct {
	workv1alpha1.LocalPlacementReference
	// selected are the clusters that have been decided on. Nothing is known about them if reason is set.
	selected []rollout.Cluster
	// passed are the clusters of its decisions that are none of them.
	passed selected.PassedOver
	// reason and message say why the decisions are not known, as PlacementVerified does.
	reason, message string
	works           map[string]*work // By cluster.
	// kept are clusters that are not selected any more, but not for long enough to delete their works.
	kept map[string]bool
	plan rollout.Plan
}

// known tells whether there are decisions to go by.
func (p *placement) known() bool { return p.reason == "" }

// passedOver are the clusters that any of the placements may select, if they change.
func (s *situation) passedOver() map[string]bool {
	clusters := map[string]bool{}
	for _, p := range s.placements {
		for cluster := range p.passed {
			clusters[cluster] = true
		}
	}
	return clusters
}

// newSituation gives each work to the placement for which it was made.
func newSituation(set *workv1alpha1.ManifestWorkReplicaSet, works []*work, now time.Time) *situation {
	s := &situation{set: set, template: &set.Spec.ManifestWorkTemplate, now: now, unfit: clustererrors.Errors{}}
	byLabel := map[string]*placement{}
	for _, ref := range set.Spec.PlacementRefs {
		label := fleet.LabelValue(ref.Name)
		if byLabel[label] == nil {
			byLabel[label] = &placement{LocalPlacementReference: ref, works: map[string]*work{}, kept: map[string]bool{}}
			s.placements = append(s.placements, byLabel[label])
		}
	}
	for _, w := range works {
		p := byLabel[w.Labels[fleet.LabelPlacementName]]
		switch {
		case p == nil:
			s.loose = append(s.loose, w)
		case p.works[w.Namespace] == nil:
			p.works[w.Namespace] = w
		default:
			// Two for one, as when a hub was killed whose works got a name by chance. The one that is there to stay
			// is the first.
			first, second := older(p.works[w.Namespace], w)
			p.works[w.Namespace] = first
			s.loose = append(s.loose, second)
		}
	}
	return s
}

// older prefers a work that is not being deleted, then the one that was first.
func older(a, b *work) (first, second *work) {
	aGoes, bGoes := !a.DeletionTimestamp.IsZero(), !b.DeletionTimestamp.IsZero()
	switch {
	case aGoes != bGoes && aGoes:
		return b, a
	case aGoes != bGoes:
		return a, b
	case b.CreationTimestamp.Before(&a.CreationTimestamp), a.CreationTimestamp.Equal(&b.CreationTimestamp) && b.Name < a.Name:
		return b, a
	default:
		return a, b
	}
}

// decide asks the engine for each placement by itself: each has a strategy of its own.
func (s *situation) decide() {
	for _, p := range s.placements {
		if !p.known() {
			continue
		}
		p.plan = rollout.Decide(rollout.Input{Strategy: p.RolloutStrategy, Clusters: s.clusters(p), Now: s.now})
		s.lookAgain(p.plan.Next)
	}
}

// clusters are those that are selected, and those that only have a work.
func (s *situation) clusters(p *placement) []rollout.Cluster {
	clusters := make([]rollout.Cluster, 0, len(p.selected))
	isSelected := make(map[string]bool, len(p.selected))
	for _, cluster := range p.selected {
		isSelected[cluster.Name] = true
		w := p.works[cluster.Name]
		if same, err := s.upToDate(cluster.Name, w); err != nil {
			s.unfit[cluster.Name], cluster.State = err, rollout.Skip
		} else {
			cluster.State, cluster.Since = stateOf(w, same, s.template)
		}
		if s.held && cluster.State == rollout.ToApply {
			cluster.State = rollout.Skip
		}
		clusters = append(clusters, cluster)
	}
	for _, name := range sortedKeys(p.works) {
		if !isSelected[name] {
			clusters = append(clusters, rollout.Cluster{Name: name, Deselected: true})
		}
	}
	return clusters
}

// lookAgain no later than then.
func (s *situation) lookAgain(then time.Time) {
	if !then.IsZero() && (s.next.IsZero() || then.Before(s.next)) {
		s.next = then
	}
}

// wait is how long it is until then.
func (s *situation) wait() time.Duration {
	if s.next.IsZero() {
		return longestWait
	}
	return min(max(s.next.Sub(s.now), time.Millisecond), longestWait)
}
