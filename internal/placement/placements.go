package placement

import (
	"hash/fnv"

	"k8s.io/apimachinery/pkg/api/equality"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// SetPlacement takes in a Placement that is new or has changed. A change of its status is no change; one that is being
// deleted is as good as gone.
func (s *Scheduler) SetPlacement(object *clusterv1beta1.Placement) []Key {
	precompile(&object.Spec)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(object)
	p := s.placements[key]
	if p != nil && p.object.UID != object.UID {
		s.remove(p) // another one of the same name has no decisions yet
		p = nil
	}
	if object.DeletionTimestamp != nil {
		if p != nil {
			s.remove(p)
		}
		return []Key{key}
	}
	if p == nil {
		p = &placement{key: key, hash: hashKey(key)}
		s.placements[key] = p
		s.namespace(key.Namespace).placements[key] = p
		s.adoptOrphan(p)
	} else if sameSpec(p.object, object) {
		disabled, generation := p.disabled, p.object.Generation
		p.update(object)
		// Of a spec that only says the same in other words, the status is still to say that it was observed.
		if disabled != p.disabled || generation != object.Generation {
			return []Key{key}
		}
		return nil
	}
	changed := p.object != nil // it is not new
	p.update(object)
	s.reparse(p)
	affected := affected{key: {}}
	if changed && p.class != nil {
		s.retryOverBudget(p.class, affected)
	}
	return affected.keys()
}

// retryOverBudget has the CEL expressions of a class evaluated again that cost too much when they last were.
func (s *Scheduler) retryOverBudget(class *equivalenceClass, affected affected) {
	if class.overBudget() {
		s.dropCandidates(class)
		s.cancelEvaluation(class)
		class.addAll(affected)
	}
}

func keyOf(object *clusterv1beta1.Placement) Key {
	return Key{Namespace: object.Namespace, Name: object.Name}
}

func hashKey(key Key) uint64 {
	digest := fnv.New64a()
	_, _ = digest.Write([]byte(key.String()))
	return digest.Sum64()
}

func sameSpec(a, b *clusterv1beta1.Placement) bool {
	return equality.Semantic.DeepEqual(&a.Spec, &b.Spec)
}

// reparse parses the spec of a placement, and gives it its class.
func (s *Scheduler) reparse(p *placement) {
	former := p.spec
	p.spec, p.misconfiguration = parseSpec(p.object, func(signature string) *profile { return s.profiles[signature] })
	if p.spec != nil {
		p.spec.profile.references++
		s.profiles[p.spec.profile.signature] = p.spec.profile
		s.classify(p, s.namespaces[p.key.Namespace])
	} else {
		s.leaveClass(p)
	}
	s.releaseProfile(former)
}

func (s *Scheduler) releaseProfile(former *parsedSpec) {
	if former == nil {
		return
	}
	if former.profile.references--; former.profile.references == 0 {
		delete(s.profiles, former.profile.signature)
	}
}

// DeletePlacement forgets a Placement and its decisions.
func (s *Scheduler) DeletePlacement(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.placements[key]; p != nil {
		s.remove(p)
	}
}

func (s *Scheduler) remove(p *placement) {
	s.setDecision(p, nil)
	s.leaveClass(p)
	s.releaseProfile(p.spec)
	delete(s.placements, p.key)
	delete(s.namespaces[p.key.Namespace].placements, p.key)
	s.forgetNamespace(p.key.Namespace)
}
