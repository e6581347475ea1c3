package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/manifests"
	"github.com/capstan-io/capstan/internal/cli/manifestworks"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement/decided"
)

// maxConcurrentRequests bounds for how many clusters there are requests at the same time.
const maxConcurrentRequests = 10

// stableFor is how long decisions have to stay the same before works are deleted by them. A scheduler writes those of a placement within
// a fraction of that.
const stableFor = time.Second

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

// plan is what is to be done in clusters that get the work, and in those that lose it.
type plan struct {
	deliveries, deletions []step
	// decisions are those of the placement that this is about, if there is one.
	decisions *options.Decisions
	// passedOver are the clusters that it names, and that do not count.
	passedOver decided.PassedOver
}

// leftOut is an error if clusters of the decisions get nothing, and that stays so.
func (d *delivery) leftOut(p *plan) error {
	left := p.passedOver.Lasting()
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("placement %s: %s. A hub with --trust-placement-decisions brings works there all the same: for that, name the clusters "+
		"with --clusters", d.placement, left)
}

// plan returns what is to be done. It fails for all reasons that can be found beforehand, and reports all of them.
func (d *delivery) plan(ctx context.Context, hub *hubapi.Hub) (*plan, error) {
	if d.placement == nil {
		steps, err := d.planClusters(ctx, hub, d.clusters)
		return &plan{deliveries: steps}, err
	}
	decisions, err := options.ReadDecisions(ctx, hub, *d.placement)
	if err != nil {
		return nil, err
	}
	clusters, passedOver, err := d.Eligible(ctx, hub, decisions)
	if err != nil {
		return nil, err
	}
	if len(clusters) == 0 && !d.overwrite {
		return nil, decisions.SelectsNone(passedOver)
	}
	p := &plan{decisions: decisions, passedOver: passedOver}
	p.deliveries, err = d.planClusters(ctx, hub, clusters)
	if err != nil || !d.overwrite {
		return p, err
	}
	p.deletions, err = d.planDeletions(ctx, hub, decisions)
	return p, err
}

// planClusters returns what is to be done in clusters that get the work.
func (d *delivery) planClusters(ctx context.Context, hub *hubapi.Hub, clusters []string) ([]step, error) {
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
	return steps, nil
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
	if !d.follows(live) {
		s.work.Labels = nil
	}
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

// follows reports whether a work is one that the placement has brought to its cluster.
func (d *delivery) follows(live *workv1.ManifestWork) bool {
	return d.placement != nil && live.Labels[fleet.LabelWorkPlacement] == d.placementLabel()
}

// placementLabel is the label value of works that are made for the placement.
func (d *delivery) placementLabel() string {
	return fleet.LabelValue(d.placement.Namespace + "." + d.placement.Name)
}

// planDeletions finds the works of this name that the placement has brought to clusters which it does not select any more. Works of other
// placements, those that a user created by name of the cluster, and those in clusters of decisions that do not count, stay.
func (d *delivery) planDeletions(ctx context.Context, hub *hubapi.Hub, decisions *options.Decisions) ([]step, error) {
	list, err := manifestworks.List(ctx, hub, "", fleet.LabelWorkPlacement+"="+d.placementLabel())
	if err != nil {
		return nil, err
	}
	var steps []step
	for i := range list.Items {
		live := &list.Items[i]
		if live.Name == d.name && !slices.Contains(decisions.Clusters, live.Namespace) && live.DeletionTimestamp.IsZero() {
			steps = append(steps, step{action: actionDelete, work: live, live: live})
		}
	}
	if len(steps) == 0 {
		return nil, nil
	}
	slices.SortFunc(steps, func(a, b step) int { return strings.Compare(a.work.Namespace, b.work.Namespace) })
	return steps, d.checkStable(ctx, hub, decisions)
}

// checkStable fails unless the decisions are complete, and are the same a moment later. A scheduler writes them one after another, so a
// cluster that moves between them is in none for a moment, and one of a placement that is created again is in none until they are written.
func (d *delivery) checkStable(ctx context.Context, hub *hubapi.Hub, before *options.Decisions) error {
	d.Clock.Sleep(stableFor)
	stay, err := d.decisionsStay(ctx, hub, before)
	if err == nil && (!before.Settled || !stay) {
		err = fmt.Errorf("placement %s is being decided on, so it is not known which clusters lose work %s, and nothing was changed: "+
			"try again in a few seconds", d.placement, d.name)
	}
	return err
}

// decisionsStay reports whether the decisions are complete, and still those.
func (d *delivery) decisionsStay(ctx context.Context, hub *hubapi.Hub, before *options.Decisions) (bool, error) {
	now, err := options.ReadDecisions(ctx, hub, *d.placement)
	if err != nil {
		return false, err
	}
	return now.Settled && slices.Equal(before.Clusters, now.Clusters), nil
}
