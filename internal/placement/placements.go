package placement

import (
	"k8s.io/apimachinery/pkg/api/equality"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// SetPlacement adds or updates a Placement and returns the placements that this may affect. A changed status has no effect. A placement
// that is being deleted is removed.
func (s *Scheduler) SetPlacement(object *clusterv1beta1.Placement) []Key {
	precompile(&object.Spec)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(object)
	p := s.snapshot.placements[key]
	if p != nil && p.object.UID != object.UID {
		s.remove(p) // the new one was created after the old one was deleted, and has no decisions yet
		p = nil
	}
	if object.DeletionTimestamp != nil {
		if p != nil {
			s.remove(p)
		}
		return []Key{key}
	}
	if p == nil {
		p = &placement{key: key, hash: hashOf(key.String())}
		s.snapshot.placements[key] = p
		s.snapshot.placementsIn.set(key.Namespace, p, true)
		s.snapshot.adoptOrphan(p)
	}
	former, disabled := p.object, p.disabled // nil and false for a new one
	p.update(object)
	s.snapshot.unmanaged.set(key.Namespace, key, p.disabled)
	if former != nil && sameSpec(former, object) {
		// An equal spec may have a new generation, which the conditions have to show as observed.
		if disabled != p.disabled || former.Generation != object.Generation {
			return []Key{key}
		}
		return nil
	}
	s.classes.reparse(p)
	affected := affected{key: {}}
	if former != nil && p.class != nil {
		s.classes.retryOverBudget(p.class, affected)
	}
	return affected.keys()
}

// retryOverBudget lets the CEL expressions of a class be evaluated again if they exceeded the budget.
func (cc *classCache) retryOverBudget(class *equivalenceClass, affected affected) {
	if class.overBudget() {
		cc.dropCandidates(class)
		cc.evaluations.cancel(class)
		class.addAll(affected)
	}
}

func keyOf(object *clusterv1beta1.Placement) Key {
	return Key{Namespace: object.Namespace, Name: object.Name}
}

func sameSpec(a, b *clusterv1beta1.Placement) bool {
	return equality.Semantic.DeepEqual(&a.Spec, &b.Spec)
}

// reparse parses the spec of a placement and classifies the placement.
func (cc *classCache) reparse(p *placement) {
	if p.spec, p.misconfiguration = parseSpec(p.object); p.spec == nil {
		cc.leaveClass(p)
		return
	}
	cc.classify(p)
}

// DeletePlacement removes a Placement and its decisions.
func (s *Scheduler) DeletePlacement(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.snapshot.placements[key]; p != nil {
		s.remove(p)
	}
}

func (s *Scheduler) remove(p *placement) {
	s.snapshot.setDecision(p, nil)
	s.classes.leaveClass(p)
	delete(s.snapshot.placements, p.key)
	s.snapshot.placementsIn.set(p.key.Namespace, p, false)
	s.snapshot.unmanaged.set(p.key.Namespace, p.key, false)
}
