package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/manifests"
	"github.com/capstan-io/capstan/internal/cli/manifestworks"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// maxConcurrentRequests bounds for how many clusters there are requests at the same time.
const maxConcurrentRequests = 10

// action is what becomes of the work of one cluster.
type action int

const (
	actionCreate action = iota
	actionUpdate
	actionKeep
	actionDelete
)

// step is what is to be done in one cluster.
type step struct {
	action action
	work   *workv1.ManifestWork // as it should be
	live   *workv1.ManifestWork // as it is, nil if it is not there
}

// plan returns what is to be done in each cluster, those that get the work before those that lose it. It fails for all reasons
// that can be found beforehand, and reports all of them.
func (d *delivery) plan(ctx context.Context, hub *hubapi.Hub) ([]step, error) {
	clusters := d.clusters
	if d.placement != nil {
		decided, err := options.DecidedClusters(ctx, hub, *d.placement)
		if err != nil {
			return nil, err
		}
		if len(decided) == 0 && !d.overwrite {
			return nil, fmt.Errorf("placement %s selects no clusters: \"capstan explain placement %s --namespace %s\" shows why", d.placement,
				d.placement.Name, d.placement.Namespace)
		}
		clusters = decided
	}
	steps := make([]step, len(clusters))
	errs := make([]error, len(clusters))
	var group errgroup.Group
	group.SetLimit(maxConcurrentRequests)
	for i, cluster := range clusters {
		group.Go(func() error {
			steps[i], errs[i] = d.planCluster(ctx, hub, cluster)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs, in the order of the clusters
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if d.placement == nil || !d.overwrite {
		return steps, nil
	}
	left, err := d.planDeletions(ctx, hub, clusters)
	return append(steps, left...), err
}

func (d *delivery) planCluster(ctx context.Context, hub *hubapi.Hub, cluster string) (step, error) {
	if d.placement == nil { // a placement selects none but those that exist
		if err := options.CheckCluster(ctx, hub, cluster); err != nil {
			return step{}, err
		}
	}
	s := step{action: actionCreate, work: newWork(cluster, d.name, d.workload)}
	if d.placement != nil {
		s.work.Labels = map[string]string{fleet.LabelWorkPlacement: d.placementLabel()}
	}
	live, err := manifestworks.Get(ctx, hub, cluster, d.name)
	if apierrors.IsNotFound(err) && !errors.Is(err, hubapi.ErrNotAHub) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.live = live
	switch {
	case live.Labels[fleet.LabelManifestWorkReplicaSet] != "":
		return s, fmt.Errorf("work %s in cluster %s belongs to ManifestWorkReplicaSet %s, which would put it right: change that, or choose another name",
			live.Name, cluster, live.Labels[fleet.LabelManifestWorkReplicaSet])
	case !live.DeletionTimestamp.IsZero():
		return s, fmt.Errorf("work %s in cluster %s is being deleted: try again when it is gone, or choose another name; \"capstan delete work %s --cluster "+
			"%s\" waits for that",
			live.Name, cluster, live.Name, cluster)
	case manifests.SameWorkload(live.Spec.Workload, d.workload):
		s.action = actionKeep
	case !d.overwrite:
		return s, fmt.Errorf("work %s in cluster %s already exists, with other manifests: replace them with --overwrite, or choose another name",
			live.Name, cluster)
	default:
		s.action = actionUpdate
	}
	return s, nil
}

// placementLabel is the label value of works that are made for the placement.
func (d *delivery) placementLabel() string {
	return fleet.LabelValue(d.placement.Namespace + "." + d.placement.Name)
}

// planDeletions finds the works of this name that the placement has brought to clusters which it does not select any more. Works of other
// placements, and those that a user created by name of the cluster, stay.
func (d *delivery) planDeletions(ctx context.Context, hub *hubapi.Hub, decided []string) ([]step, error) {
	list, err := manifestworks.List(ctx, hub, "", fleet.LabelWorkPlacement+"="+d.placementLabel())
	if err != nil {
		return nil, err
	}
	var steps []step
	for i := range list.Items {
		live := &list.Items[i]
		if live.Name == d.name && !slices.Contains(decided, live.Namespace) && live.DeletionTimestamp.IsZero() {
			steps = append(steps, step{action: actionDelete, work: live, live: live})
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return strings.Compare(a.work.Namespace, b.work.Namespace) })
	return steps, nil
}
