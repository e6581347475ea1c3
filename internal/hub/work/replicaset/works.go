package replicaset

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/rollout"
)

// work is a ManifestWork of a set, straight from the cache: it must not be changed.
type work struct {
	*workv1.ManifestWork
	// same reports whether it has the spec of its cluster, once compared is true.
	compared, same bool
}

// rewritten replaces the work by the written one. It drops the spec, which is known to be right: the specs of many clusters would fill
// the memory until the end of a pass.
func (w *work) rewritten(now *workv1.ManifestWork) {
	w.ManifestWork, w.compared, w.same = now, true, true
	w.Spec = workv1.ManifestWorkSpec{}
}

// Strip is the transform for a cache of works. It strips the field managers, and of works of sets, of which a fleet has the most, what
// agents report on single objects: controllers read the conditions of these works alone, and write them by patches.
func Strip(o any) (any, error) {
	w, ok := o.(*workv1.ManifestWork)
	if !ok {
		return o, nil
	}
	w.ManagedFields = nil
	if w.Labels[fleet.LabelManifestWorkReplicaSet] != "" {
		w.Status.ResourceStatus = workv1.ManifestResourceStatus{}
	}
	return w, nil
}

// worksOf returns the works with the label of the set.
func (c *Controller) worksOf(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet) ([]*work, error) {
	list := &workv1.ManifestWorkList{}
	key := fleet.ManifestWorkReplicaSetKey(set.Namespace, set.Name)
	if err := c.client.List(ctx, list, client.MatchingFields{indexSet: key}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the works of ManifestWorkReplicaSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	works := make([]*work, len(list.Items))
	for i := range list.Items {
		works[i] = &work{ManifestWork: &list.Items[i]}
	}
	return works, nil
}

// change is a write that brings a work in line with its plan.
type change struct {
	at    place
	write func(context.Context, client.Client) error
	// done records that the change was written.
	done func()
}

// failures are the errors of changes, by where the works belong.
type failures map[place]error

// byCluster returns one error for each cluster; always the same one.
func (f failures) byCluster() selected.Errors {
	all := selected.Errors{}
	for _, at := range slices.SortedFunc(maps.Keys(f), comparePlaces) {
		all[at.cluster] = f[at]
	}
	return all
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.placement, b.placement))
}

// writeWorks makes the changes that the plans require, and returns the errors. Deletions start when all others are done. A cluster where
// one of these has failed keeps its works. Where a deletion fails, other works of the cluster are still written.
func (c *Controller) writeWorks(ctx context.Context, s *snapshot) selected.Errors {
	unwritten := c.write(ctx, s.changes())
	s.noteObstacles(unwritten)
	failed := unwritten.byCluster()
	for _, p := range s.placements {
		p.keep(sortedKeys(failed))
	}
	maps.Copy(failed, c.write(ctx, s.removals(failed)).byCluster())
	return failed
}

// keepPredecessors keeps works that wait for a successor: a cluster that gets its objects from another placement now does not lose them in
// between. They wait until the rollout of that placement has reached the cluster or stops, or no placement selects the cluster any more.
// While it is not known what a placement selects, these are also the works of placements that have left the set or select no cluster any
// more, where the namespace of the set has a right to the cluster.
func (c *Controller) keepPredecessors(ctx context.Context, s *snapshot) error {
	leaving := s.leaving()
	awaiting := s.awaitSuccessor(leaving)
	replaced, err := c.mayBeReplaced(ctx, s, sortedKeys(leaving))
	if err != nil {
		return err
	}
	for _, p := range s.placements {
		for _, cluster := range p.plan.Names(rollout.Remove) {
			if awaiting[p.works[cluster]] || len(p.selected) == 0 && replaced[cluster] {
				p.kept[cluster] = true
			}
		}
	}
	s.loose = slices.DeleteFunc(s.loose, func(w *work) bool { return awaiting[w] || replaced[w.Namespace] })
	return nil
}

// leaving returns the works that belong to no placement, or whose placement no longer selects the cluster, by cluster.
func (s *snapshot) leaving() map[string][]*work {
	leaving := map[string][]*work{}
	for _, w := range s.loose {
		leaving[w.Namespace] = append(leaving[w.Namespace], w)
	}
	for _, p := range s.placements {
		for _, cluster := range p.plan.Names(rollout.Remove) {
			leaving[cluster] = append(leaving[cluster], p.works[cluster])
		}
	}
	return leaving
}

// awaitSuccessor returns those of the leaving works that the work of a placement which selects the cluster, or does so when the hub has set
// that up, does not replace yet.
func (s *snapshot) awaitSuccessor(leaving map[string][]*work) map[*work]bool {
	awaiting := map[*work]bool{}
	for _, p := range s.placements {
		for _, cluster := range p.successors() {
			for _, w := range leaving[cluster] {
				if !s.replaces(p, p.works[cluster], w) {
					awaiting[w] = true
				}
			}
		}
	}
	return awaiting
}

// successors returns the clusters on which the placement has a work, or is to have one.
func (p *placement) successors() []string {
	names := make([]string, 0, len(p.selected))
	for _, cluster := range p.selected {
		names = append(names, cluster.Name)
	}
	for cluster := range p.passed {
		if p.passed.Keeps(cluster) {
			names = append(names, cluster)
		}
	}
	return names
}

// replaces reports whether a successor is applied, and has what the cluster is to have: the template, or the same as the work that leaves.
// A rollout that has stopped gives the cluster nothing else, and what the work has more may be why.
func (s *snapshot) replaces(p *placement, successor, leaving *work) bool {
	if !successor.applied() {
		return false
	}
	if p.plan.Phase == rollout.Stopped {
		return true
	}
	same, err := s.upToDate(successor.Namespace, successor)
	return err == nil && same || manifest.SameSpec(&successor.Spec, &leaving.Spec)
}

// mayBeReplaced returns those of the named clusters whose works may have a successor of a placement of which it is not known yet what it
// selects.
func (c *Controller) mayBeReplaced(ctx context.Context, s *snapshot, names []string) (map[string]bool, error) {
	may := map[string]bool{}
	if !slices.ContainsFunc(s.placements, func(p *placement) bool { return !p.known() }) {
		return may, nil
	}
	clusters, passed, err := c.selected.Named(ctx, s.set.Namespace, names...)
	if err != nil {
		return nil, err
	}
	for _, cluster := range clusters {
		may[cluster.Name] = true
	}
	for cluster := range passed {
		may[cluster] = passed.Keeps(cluster)
	}
	return may, nil
}

// applied reports whether the work is there to stay, and its agent has applied it as it is.
func (w *work) applied() bool {
	return w != nil && w.DeletionTimestamp.IsZero() && isTrue(w.current(fleet.ConditionApplied))
}

// changes returns the creates and updates that the plans require. A work that is being deleted is left alone until it is gone.
func (s *snapshot) changes() (all []change) {
	for _, p := range s.placements {
		for _, cluster := range p.plan.Clusters {
			w := p.works[cluster.Name]
			switch {
			case cluster.Phase == rollout.Remove: // see removals
			case w == nil && cluster.Phase.GetsChange() && s.stalled == "":
				all = append(all, s.create(p, cluster.Name))
			case w != nil && w.DeletionTimestamp.IsZero():
				all = append(all, s.update(p, w, cluster.Phase)...)
			}
		}
	}
	return all
}

// removals returns the deletions that the plans require, but for those of works that are kept, and of others on clusters where a change
// has failed.
func (s *snapshot) removals(failed selected.Errors) (all []change) {
	for _, p := range s.placements {
		for _, cluster := range p.plan.Names(rollout.Remove) {
			if !p.kept[cluster] {
				all = append(all, remove(p.works[cluster]))
			}
		}
	}
	for _, w := range slices.Concat(s.loose, s.doubles) {
		if failed[w.Namespace] == nil {
			all = append(all, remove(w))
		}
	}
	return all
}

// write writes many works at once, and returns the errors. An error for one cluster does not delay the others.
func (c *Controller) write(ctx context.Context, all []change) failures {
	var mu sync.Mutex
	failed := failures{}
	var group errgroup.Group
	group.SetLimit(writers)
	for _, change := range all {
		group.Go(func() error {
			err := change.write(ctx, c.client)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[change.at] = err
			} else {
				change.done()
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are in failed
	return failed
}

// create returns the change that creates the work of a cluster. Its name is always the same, so that a hub that is killed before it
// sees its own write does not create a second one.
func (s *snapshot) create(p *placement, cluster string) change {
	at := place{p.Name, cluster}
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Namespace:    cluster,
		Name:         workName(s.set, p.Name, cluster),
		GenerateName: s.set.Name,
		Annotations:  s.noteWritten(at),
	}}
	label(w, s.labels(p), s.labelsOfSet())
	return change{
		at: at,
		write: func(ctx context.Context, c client.Client) error {
			spec, err := s.clusterSpec(cluster)
			if err != nil {
				return err
			}
			spec.DeepCopyInto(&w.Spec)
			return s.createOrAdopt(ctx, c, p, w)
		},
		done: func() {
			p.works[cluster] = &work{}
			p.works[cluster].rewritten(w)
		},
	}
}

// createOrAdopt also adopts an existing work that has lost its labels. A work with the label of another set is left alone, even if its
// name matches: a user who chooses the names of sets, placements and namespaces can find colliding hashes.
func (s *snapshot) createOrAdopt(ctx context.Context, c client.Client, p *placement, w *workv1.ManifestWork) error {
	desired := w.DeepCopy()
	err := c.Create(ctx, w)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	found := &workv1.ManifestWork{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(w), found); err != nil {
		return err
	}
	if found.Annotations[fleet.AnnotationTemplateWrittenAt] == "" || s.isOfAnother(found) {
		return fmt.Errorf("ManifestWork %s/%s is in the way: delete it, or give it the labels of this set", found.Namespace, found.Name)
	}
	before := found.DeepCopy()
	label(found, s.labels(p), s.labelsOfSet())
	found.Annotations = merged(found.Annotations, desired.Annotations)
	found.Spec = desired.Spec
	if err := c.Patch(ctx, found, patch.Work(before)); err != nil {
		return err
	}
	found.DeepCopyInto(w)
	return nil
}

// isOfAnother reports whether a work has the label of another set.
func (s *snapshot) isOfAnother(w *workv1.ManifestWork) bool {
	set, labelled := w.Labels[fleet.LabelManifestWorkReplicaSet]
	return labelled && set != fleet.ManifestWorkReplicaSetKey(s.set.Namespace, s.set.Name)
}

// update returns at most one change: of the labels if they differ, and of the spec when the rollout reaches the cluster, or has done so
// before others changed the work.
func (s *snapshot) update(p *placement, w *work, phase rollout.ClusterPhase) []change {
	same, err := s.upToDate(w.Namespace, w)
	rewrite := err == nil && phase.GetsChange() && !same
	if !rewrite && labelled(w.ManifestWork, s.labels(p), s.labelsOfSet()) {
		return nil
	}
	before, after := w.ManifestWork, &workv1.ManifestWork{}
	one := change{at: place{p.Name, w.Namespace}, done: func() { w.ManifestWork = after }}
	if rewrite {
		one.done = func() { w.rewritten(after) }
	}
	// There is no optimistic lock: the agent writes the status all the time, and the fields that are written here belong to the set.
	one.write = func(ctx context.Context, c client.Client) error {
		before.DeepCopyInto(after)
		label(after, s.labels(p), s.labelsOfSet())
		if rewrite {
			if err := s.rewrite(p, after); err != nil {
				return err
			}
		}
		return client.IgnoreNotFound(c.Patch(ctx, after, patch.Work(before)))
	}
	return []change{one}
}

// rewrite sets the spec of the cluster.
func (s *snapshot) rewrite(p *placement, w *workv1.ManifestWork) error {
	spec, err := s.clusterSpec(w.Namespace)
	if err != nil {
		return err
	}
	spec.DeepCopyInto(&w.Spec)
	w.Annotations = merged(w.Annotations, s.noteWritten(place{p.Name, w.Namespace}))
	return nil
}

// remove returns the change that deletes a work, unless it is being deleted already.
func remove(w *work) change {
	at, nothing := place{w.Labels[fleet.LabelPlacementName], w.Namespace}, func() {}
	if !w.DeletionTimestamp.IsZero() {
		return change{at: at, write: func(context.Context, client.Client) error { return nil }, done: nothing}
	}
	before := w.ManifestWork
	return change{
		at: at,
		write: func(ctx context.Context, c client.Client) error {
			err := c.Delete(ctx, before.DeepCopy(), client.Preconditions{UID: &before.UID})
			if apierrors.IsConflict(err) {
				return nil // it is another object with the same name
			}
			return client.IgnoreNotFound(err)
		},
		done: nothing,
	}
}

// workName returns the name of the work of a set for a placement on a cluster. It starts with the name of the set, as far as the name
// of an AppliedManifestWork, which adds a hash, has room. It differs on each cluster: a cluster that is registered twice, under two
// names, would otherwise take the works of both for the same.
func workName(set *workv1alpha1.ManifestWorkReplicaSet, placement, cluster string) string {
	const longest, digits = 253 - 2*sha256.Size - 1, 10
	sum := sha256.Sum256([]byte(set.Namespace + "/" + set.Name + "/" + placement + "/" + cluster))
	name := set.Name[:min(len(set.Name), longest-digits-1)]
	return name + "-" + hex.EncodeToString(sum[:])[:digits]
}

// namedFor reports whether a work has the name of one that was created for the set: workName, or a name that the API server generated for
// another implementation of the hub.
func namedFor(set *workv1alpha1.ManifestWorkReplicaSet, w *work) bool {
	if w.Name == workName(set, w.Labels[fleet.LabelPlacementName], w.Namespace) { // the set may no longer have the placement
		return true
	}
	for _, ref := range set.Spec.PlacementRefs { // the label of a long name differs from it
		if w.Name == workName(set, ref.Name, w.Namespace) {
			return true
		}
	}
	const mostGenerated, random = 58, 5
	rest, ok := strings.CutPrefix(w.Name, set.Name[:min(len(set.Name), mostGenerated)])
	return ok && len(rest) == random
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
