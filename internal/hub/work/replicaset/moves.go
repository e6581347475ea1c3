package replicaset

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/rollout"
)

// stormWindow is how long a cluster that was lost, and whose work has moved, counts among those that are lost at once.
const stormWindow = 10 * time.Minute

// lost are the clusters of a set that placements no longer select because they are unreachable.
type lost struct {
	clusters, of map[string]bool
}

// readMoves determines which works stay for now on clusters that are no longer selected: those that wait for another one to be available,
// and all of them while too many clusters are lost.
func (c *Controller) readMoves(ctx context.Context, s *snapshot) error {
	graceful, most := s.set.Annotations[fleet.AnnotationGracefulMove] == fleet.LabelTrue, s.set.Annotations[fleet.AnnotationMaxLost]
	if !graceful && most == "" {
		return nil
	}
	all := lost{map[string]bool{}, map[string]bool{}}
	mayStay := map[*placement][]string{}
	for _, p := range s.placements {
		if !p.known() {
			continue
		}
		silent, err := c.silent(ctx, p)
		if err != nil {
			return err
		}
		if mayStay[p], err = c.mayStay(ctx, s.set.Namespace, p, silent); err != nil {
			return err
		}
		s.count(p, silent, &all)
		if graceful {
			p.keep(mayStay[p][:min(len(mayStay[p]), p.unready())])
		}
	}
	if limit, err := rollout.ParseMaxLost(most); err == nil && limit.Exceeded(len(all.clusters), len(all.of)) {
		s.stalled = fmt.Sprintf("%d of %s lost at once: %s. The annotation %s allows %s, so no work moves; it does when clusters are "+
			"back, or with another value", len(all.clusters), text.Count(len(all.of), "cluster"),
			text.FirstFew(sortedKeys(all.clusters)), fleet.AnnotationMaxLost, most)
		for p, names := range mayStay {
			p.keep(names)
		}
	}
	return nil
}

// silent are the clusters with a work that are no longer selected and are not available, but for those that a user has deleted or denied.
func (c *Controller) silent(ctx context.Context, p *placement) (map[string]bool, error) {
	names := map[string]bool{}
	for _, name := range p.deselected() {
		cluster := &clusterv1.ManagedCluster{}
		err := c.client.Get(ctx, client.ObjectKey{Name: name}, cluster, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get ManagedCluster %s: %w", name, err)
		}
		if err != nil || !cluster.DeletionTimestamp.IsZero() || managedcluster.Denied(cluster) {
			continue
		}
		names[name] = !meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionClusterAvailable)
	}
	return names, nil
}

// mayStay are the clusters that are no longer selected whose works may stay: those to which the namespace of the set has a right. Those
// that are available come first.
func (c *Controller) mayStay(ctx context.Context, namespace string, p *placement, silent map[string]bool) ([]string, error) {
	var candidates []string
	for _, name := range p.deselected() {
		if p.works[name].DeletionTimestamp.IsZero() && p.passed[name] == "" {
			candidates = append(candidates, name)
		}
	}
	clusters, _, err := c.selected.Named(ctx, namespace, candidates...)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(clusters))
	for _, cluster := range clusters {
		names = append(names, cluster.Name)
	}
	slices.Sort(names)
	slices.SortStableFunc(names, func(a, b string) int {
		switch {
		case silent[a] == silent[b]:
			return 0
		case silent[a]:
			return 1
		default:
			return -1
		}
	})
	return names, nil
}

// count adds the clusters of a placement with works, and those of them that are lost.
func (s *snapshot) count(p *placement, silent map[string]bool, all *lost) {
	for name, w := range p.works {
		all.of[name] = true
		moved := w.DeletionTimestamp
		switch {
		case !silent[name]:
		case moved.IsZero():
			all.clusters[name] = true
		case s.now.Before(moved.Add(stormWindow)):
			all.clusters[name] = true
			s.requeueBy(moved.Add(stormWindow))
		}
	}
}

// unready is how many clusters the placement selects, or is to select, on which its work is not available.
func (p *placement) unready() (n int) {
	for _, cluster := range p.selected {
		if w := p.works[cluster.Name]; w == nil || !w.DeletionTimestamp.IsZero() || !isTrue(w.current(fleet.ConditionAvailable)) {
			n++
		}
	}
	return n + max(0, p.desired-len(p.selected))
}

func (p *placement) keep(clusters []string) {
	for _, name := range clusters {
		p.kept[name] = true
	}
}

// reportMoves sets the condition MovesHeld of a set with a limit, and records an event when it becomes true.
func (c *Controller) reportMoves(s *snapshot) {
	conditions := &s.set.Status.Conditions
	if s.set.Annotations[fleet.AnnotationMaxLost] == "" {
		meta.RemoveStatusCondition(conditions, fleet.ConditionMovesHeld)
		return
	}
	condition := metav1.Condition{Type: fleet.ConditionMovesHeld, Status: metav1.ConditionFalse, Reason: fleet.ReasonAsExpected,
		ObservedGeneration: s.set.Generation, LastTransitionTime: metav1.NewTime(s.now)}
	if s.stalled != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, fleet.ReasonTooManyClustersLost, s.stalled
		if !meta.IsStatusConditionTrue(*conditions, fleet.ConditionMovesHeld) {
			c.recorder.Eventf(s.set, nil, corev1.EventTypeWarning, fleet.ReasonTooManyClustersLost, "Reconcile", "%s", s.stalled)
		}
	}
	meta.SetStatusCondition(conditions, condition)
}
