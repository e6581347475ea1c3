package replicaset

import (
	"time"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement/decided"
	"github.com/capstan-io/capstan/internal/rollout"
)

// snapshot is a set and everything that belongs to it, at one time.
type snapshot struct {
	set *workv1alpha1.ManifestWorkReplicaSet
	// template is what is rolled out: the set's present template, or a former one.
	template   *workv1.ManifestWorkSpec
	placements []*placement
	// loose are works that belong to no placement, and doubles those that belong to one with another work on the cluster.
	loose, doubles []*work
	now            time.Time
	// next is when the set is due without an event. Zero is never.
	next time.Time
	// history is set if the set is rolled back when it fails. rollback says that it was, and warning why it cannot be. held means that no
	// further cluster gets the template, and again is an error of reading or storing a template after which it is tried again.
	history           history
	rollback, warning string
	suspended         bool
	again             error
	// renderer is set if the set has overrides. unfit has the errors of clusters whose spec cannot be rendered or written.
	renderer *renderer
	pass     *pass
	unfit    selected.Errors
	// has is how far clusters are with the specs of their works, and had what it was at the last decision. identity is that of the template.
	had, has map[place]given
	identity identity
	// obstacles are why works cannot be written.
	obstacles map[place]obstacle
	// stalled says why no work moves to another cluster; empty if works do.
	stalled string
}

// placement is a placement of the set, and its works.
type placement struct {
	workv1alpha1.LocalPlacementReference
	// selected are the clusters in the decisions. They are not known if reason is set.
	selected []rollout.Cluster
	// desired is how many clusters it is to select; 0 if it has no number.
	desired int
	// passed are clusters in the decisions that must not be acted on.
	passed decided.PassedOver
	// reason and message are why the decisions are not known, for PlacementVerified.
	reason, message string
	works           map[string]*work // By cluster.
	// kept are clusters that have not been deselected for long enough to delete their works, that are passed over for a moment, whose works
	// wait to move or for a successor, or where a write has failed.
	kept map[string]bool
	// absent are selected clusters that the rollout leaves out because their works are being deleted, or cannot be rendered or written.
	absent []string
	plan   rollout.Plan
}

// known reports whether the decisions of the placement are known.
func (p *placement) known() bool { return p.reason == "" }

// passedOver returns the clusters that a placement may select once they change.
func (s *snapshot) passedOver() map[string]bool {
	clusters := map[string]bool{}
	for _, p := range s.placements {
		for cluster := range p.passed {
			clusters[cluster] = true
		}
	}
	return clusters
}

// newSnapshot assigns each work to the placement that it was created for.
func newSnapshot(set *workv1alpha1.ManifestWorkReplicaSet, works []*work, now time.Time) *snapshot {
	s := &snapshot{set: set, template: &set.Spec.ManifestWorkTemplate, now: now}
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
			// There may be two if a hub was killed whose works had random names. The first one stays.
			first, second := older(p.works[w.Namespace], w)
			p.works[w.Namespace] = first
			s.doubles = append(s.doubles, second)
		}
	}
	return s
}

// older returns first a work that is not being deleted, or else the older one.
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

// decide computes the rollout of each placement separately, because each has its own strategy.
func (s *snapshot) decide() {
	s.recall()
	s.unfit = selected.Errors{}
	for _, p := range s.placements {
		if !p.known() {
			continue
		}
		p.plan = rollout.Decide(rollout.Input{Strategy: p.RolloutStrategy, Clusters: s.clusters(p), Now: s.now})
		s.requeueBy(p.plan.Next)
	}
}

// clusters returns the selected clusters, and those that only have a work.
func (s *snapshot) clusters(p *placement) []rollout.Cluster {
	clusters := make([]rollout.Cluster, 0, len(p.selected))
	isSelected := make(map[string]bool, len(p.selected))
	p.absent = nil
	for _, cluster := range p.selected {
		isSelected[cluster.Name] = true
		cluster.State, cluster.Since = s.stateOn(p, cluster.Name)
		switch {
		case s.suspended && (cluster.State == rollout.ToApply || cluster.State == rollout.Absent):
			cluster.State = rollout.Skip
		case cluster.State == rollout.Absent:
			p.absent = append(p.absent, cluster.Name)
		}
		clusters = append(clusters, cluster)
	}
	for _, name := range sortedKeys(p.works) {
		if !isSelected[name] {
			s.forgo(p, name)
			clusters = append(clusters, rollout.Cluster{Name: name, Deselected: true})
		}
	}
	return clusters
}

// stateOn returns the rollout state of a selected cluster, and since when it has been in it.
func (s *snapshot) stateOn(p *placement, cluster string) (rollout.State, time.Time) {
	at, w := place{p.Name, cluster}, p.works[cluster]
	same, err := s.upToDate(cluster, w)
	switch {
	case err != nil:
		s.unfit[cluster] = err
		return rollout.Absent, time.Time{}
	case same && !w.isGoing():
		return s.intact(at, w)
	}
	had := s.disturbed(at, w, same)
	if had.state == rollout.Failed || had.state == rollout.Progressing && rollout.HasDeadline(p.RolloutStrategy) {
		return had.state, had.since // it takes no place for ever, and counts as a failure in the end
	}
	if err := s.obstacleTo(at); err != nil {
		s.unfit[cluster] = err
		return rollout.Absent, time.Time{}
	}
	switch {
	case s.isStuck(w):
		return rollout.Absent, time.Time{}
	case had.state == rollout.Progressing:
		return had.state, had.since
	case w.isGoing(), had.state == rollout.Succeeded: // it has lost what it had
		return rollout.Progressing, s.now
	default:
		return rollout.ToApply, time.Time{}
	}
}

// requeueBy makes the set due at that time at the latest.
func (s *snapshot) requeueBy(then time.Time) {
	if !then.IsZero() && (s.next.IsZero() || then.Before(s.next)) {
		s.next = then
	}
}

// wait returns how long it is until the set is due.
func (s *snapshot) wait() time.Duration {
	if s.next.IsZero() {
		return longestWait
	}
	return min(max(s.next.Sub(s.now), time.Millisecond), longestWait)
}
