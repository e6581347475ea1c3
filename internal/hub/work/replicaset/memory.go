package replicaset

import (
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/rollout"
)

// given is how far a cluster is with the spec of its work. It is remembered, so that the cluster is no further and no less far when others
// change or delete the work.
type given struct {
	spec  identity
	state rollout.State
	since time.Time
	// disturbed is set when others have changed or deleted the work. A cluster that had not succeeded stays as it was until it does.
	disturbed bool
	// removed is set, and nothing else, while the set itself deletes the work because the cluster is not selected. A cluster that is selected
	// again before the work has gone begins anew.
	removed bool
}

// identity stands for the spec of a work: it is the same for as long as the template, the overrides and what these use are.
type identity [sha256.Size]byte

// place is where a work of a set belongs.
type place struct{ placement, cluster string }

// memory has what is remembered of sets from one pass to the next. After a start, the first passes fill it by what works say.
type memory struct {
	mu  sync.Mutex
	all map[types.NamespacedName]remembered
}

// remembered is what is remembered of a set: what clusters have been given, and why works cannot be written. The UID tells the set from a
// former one of the same name.
type remembered struct {
	uid       types.UID
	given     map[place]given
	obstacles map[place]obstacle
}

func (m *memory) of(set types.NamespacedName, uid types.UID) remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.all[set]; known.uid == uid {
		return known
	}
	return remembered{}
}

func (m *memory) set(set types.NamespacedName, now remembered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[types.NamespacedName]remembered{}
	}
	m.all[set] = now
}

func (m *memory) forget(set types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, set)
}

// identify returns the identity of the template with the overrides.
func identify(template *workv1.ManifestWorkSpec, overrides string) (id identity, err error) {
	sum := sha256.New()
	for i := range template.Workload.Manifests {
		sum.Write(template.Workload.Manifests[i].Raw)
		sum.Write([]byte{0})
	}
	rest := *template
	rest.Workload.Manifests = nil
	if err := json.NewEncoder(sum).Encode(rest); err != nil {
		return id, err
	}
	sum.Write([]byte(overrides))
	return identity(sum.Sum(nil)), nil
}

// identityOn returns the identity of the spec for a cluster, which has to have been compared or rendered.
func (s *snapshot) identityOn(cluster string) identity {
	if s.renderer == nil {
		return s.identity
	}
	key := s.renderer.keyOf(cluster)
	return sha256.Sum256(append(s.identity[:], key[:]...))
}

// recall prepares the memory for another decision: what was given is taken over as it is confirmed. While it is not known what a placement
// selects, all of it stays.
func (s *snapshot) recall() {
	s.had, s.has = s.has, make(map[place]given, len(s.has))
	for _, p := range s.placements {
		if p.known() {
			continue
		}
		for cluster := range p.works {
			at := place{p.Name, cluster}
			if g, found := s.had[at]; found {
				s.has[at] = g
			}
		}
	}
}

// forgo remembers that the set deletes the work of a cluster which is not selected, unless the work is kept.
func (s *snapshot) forgo(p *placement, cluster string) {
	if at := (place{p.Name, cluster}); !p.kept[cluster] || s.had[at].removed {
		s.has[at] = given{removed: true}
	}
}

// gave reports whether the set has written a work, and not only a former set of the same name. What becomes of works of the former one,
// which may all be deleted, is no progress of the set.
func (s *snapshot) gave(w *work) bool {
	since := s.set.CreationTimestamp.Time
	return !w.CreationTimestamp.Time.Before(since) || w.writtenAt().After(since)
}

// intact returns the state of a cluster whose work is there and has its spec, and remembers it. That of a frozen work is of no use.
func (s *snapshot) intact(at place, w *work) (rollout.State, time.Time) {
	now := given{spec: s.identityOn(at.cluster)}
	now.state, now.since = stateOf(w, s.template, s.now)
	had := s.had[at]
	if now.state == rollout.Progressing && had.spec == now.spec && had.disturbed && had.state != rollout.Succeeded {
		now = had
	}
	if now.state != rollout.Skip && s.gave(w) {
		s.has[at] = now
	}
	return now.state, now.since
}

// disturbed returns how far a cluster was with its spec before others changed or deleted the work, and keeps that in memory; its state is
// empty if the cluster was not given the spec. A work with the spec that is being deleted still says so after a start.
func (s *snapshot) disturbed(at place, w *work, same bool) given {
	had, spec := s.had[at], s.identityOn(at.cluster)
	switch {
	case had.removed && w.isGoing():
		s.has[at] = had
		return given{}
	case had.spec != spec && same && w.isGoing() && s.gave(w):
		had.spec = spec
		had.state, had.since = stateOf(w, s.template, s.now)
	}
	if had.state == "" || had.state == rollout.Skip || had.spec != spec {
		return given{}
	}
	had.disturbed = true
	s.has[at] = had
	return had
}

// noteWritten returns the annotation that says in a work since when the cluster counts as having the spec that is written now: a repair
// does not give it more time.
func (s *snapshot) noteWritten(at place) map[string]string {
	since := s.now
	if has := s.has[at]; has.disturbed && has.state != rollout.Succeeded {
		since = has.since
	}
	return map[string]string{fleet.AnnotationTemplateWrittenAt: since.UTC().Format(time.RFC3339Nano)}
}

// isGoing reports whether there is a work that is being deleted.
func (w *work) isGoing() bool { return w != nil && !w.DeletionTimestamp.IsZero() }
