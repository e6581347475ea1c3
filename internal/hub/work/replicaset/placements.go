package replicaset

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/fleet"
	"github.com/capstan-io/capstan/internal/rollout"
)

// settle is how long a cluster must be in no decision before its work is deleted: a scheduler that moves a cluster from
// one PlacementDecision to another needs two writes, and the cluster may be in neither between them.
const settle = time.Second

// readPlacements finds out which clusters the placements of a set select. Where that cannot be told, as with a Placement
// that does not exist, everything stays as it is: a deleted Placement must not take the works of a fleet with it.
func (c *Controller) readPlacements(ctx context.Context, s *situation) error {
	absent := map[absence]bool{}
	for _, p := range s.placements {
		if err := c.readDecisions(ctx, s.set.Namespace, p); err != nil {
			return err
		}
		if !p.known() {
			continue
		}
		for _, cluster := range p.deselected() {
			absent[absence{p.Name, cluster}] = true
		}
	}
	since := c.absences.update(client.ObjectKeyFromObject(s.set), absent, s.now)
	for _, p := range s.placements {
		for cluster := range p.works {
			gone, found := since[absence{p.Name, cluster}]
			if due := gone.Add(settle); found && s.now.Before(due) {
				p.kept[cluster] = true
				s.lookAgain(due)
			}
		}
	}
	return nil
}

func (c *Controller) readDecisions(ctx context.Context, namespace string, p *placement) error {
	key := client.ObjectKey{Namespace: namespace, Name: p.Name}
	if err := c.client.Get(ctx, key, &clusterv1beta1.Placement{}); apierrors.IsNotFound(err) {
		p.reason = fleet.ReasonPlacementDecisionNotFound
		p.message = fmt.Sprintf("Placement %s does not exist in namespace %s: create it, or correct spec.placementRefs; until then its works stay as they are",
			p.Name, namespace)
		return nil
	} else if err != nil {
		return fmt.Errorf("get Placement %s: %w", key, err)
	}
	decisions := &clusterv1beta1.PlacementDecisionList{}
	err := c.client.List(ctx, decisions, client.InNamespace(namespace), client.MatchingFields{indexDecisionOf: fleet.LabelValue(p.Name)},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list the PlacementDecisions of Placement %s: %w", key, err)
	}
	if len(decisions.Items) == 0 {
		// A scheduler writes one even if it selects nothing (PL-16).
		p.reason = fleet.ReasonPlacementDecisionEmpty
		p.message = fmt.Sprintf("Placement %s has not been decided on yet; until then its works stay as they are", p.Name)
		return nil
	}
	p.selected = rollout.Selected(decisions.Items)
	return nil
}

// deselected are the clusters that have a work and are not selected.
func (p *placement) deselected() []string {
	selected := make(map[string]bool, len(p.selected))
	for _, cluster := range p.selected {
		selected[cluster.Name] = true
	}
	var names []string
	for cluster := range p.works {
		if !selected[cluster] {
			names = append(names, cluster)
		}
	}
	return names
}

// absence is a cluster that a placement does not select any more.
type absence struct{ placement, cluster string }

// absences remembers since when clusters are not selected. After a restart it counts anew, which only keeps a work a little
// longer.
type absences struct {
	mu    sync.Mutex
	since map[types.NamespacedName]map[absence]time.Time
}

func newAbsences() *absences {
	return &absences{since: map[types.NamespacedName]map[absence]time.Time{}}
}

// update notes who is absent now, and returns since when.
func (a *absences) update(set types.NamespacedName, absent map[absence]bool, now time.Time) map[absence]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	since := make(map[absence]time.Time, len(absent))
	for who := range absent {
		since[who] = now
		if before, found := a.since[set][who]; found {
			since[who] = before
		}
	}
	if len(since) == 0 {
		delete(a.since, set)
	} else {
		a.since[set] = since
	}
	return since
}

func (a *absences) forget(set types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, set)
}
