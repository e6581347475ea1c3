// Package work has the commands that deploy objects to clusters: works, what they would change, the placements that choose the
// clusters, and an example of an application.
package work

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/manifests"
	"github.com/capstan-io/capstan/internal/cli/manifestworks"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

const createWorkLong = `Deliver Kubernetes objects to clusters as a ManifestWork.

The clusters are those of --cluster and --clusters, or those that a placement has selected so far. With --overwrite, the work
follows the placement: it is deleted from clusters that are not selected any more, unless it was there before. With
--replicaset, the hub does that by itself from then on.

All files and clusters are checked before anything is written. --dry-run shows what would be created; --dry-run=server has each
cluster try it, and shows what would change there, as "capstan diff work" does.`

// workFlags are the flags of commands that deploy objects to clusters.
type workFlags struct {
	*options.Global
	files     manifests.Files
	clusters  options.ClusterFlags
	placement string
}

func (f *workFlags) add(command *cobra.Command) {
	f.files.Add(f.Global, command)
	f.clusters.Add(f.Global, command)
	command.Flags().StringVar(&f.placement, "placement", "", "the clusters that this placement has selected, as NAMESPACE/NAME")
	options.Complete(command, "placement", f.CompletePlacementRef)
	command.MarkFlagsMutuallyExclusive("placement", "cluster")
	command.MarkFlagsMutuallyExclusive("placement", "clusters")
}

// delivery is which manifests are to be on which clusters.
type delivery struct {
	*options.Global
	name     string
	workload workv1.ManifestsTemplate
	// Either there are clusters, or a placement that chooses them.
	clusters  []string
	placement *types.NamespacedName
	overwrite bool
}

// delivery reads the files, and fails if the flags make no sense.
func (f *workFlags) delivery(ctx context.Context, name string) (*delivery, error) {
	d := &delivery{Global: f.Global, name: name}
	var err error
	if f.placement == "" {
		if d.clusters, err = f.clusters.Names(); err == nil && len(d.clusters) == 0 {
			err = errors.New("either --cluster or --clusters needs to be set, or --placement; \"capstan get clusters\" lists the clusters there are")
		}
	} else {
		d.placement, err = options.ParsePlacementRef("--placement", f.placement)
	}
	if err != nil {
		return nil, err
	}
	if d.workload.Manifests, err = f.files.Read(ctx); err != nil {
		return nil, err
	}
	d.warnNested()
	return d, nil
}

// workCreation is one run of "capstan create work".
type workCreation struct {
	workFlags
	overwrite  bool
	replicaSet bool
	dryRunMode *options.DryRunFlag
}

// NewCreateCommand is "capstan create work".
func NewCreateCommand(global *options.Global) *cobra.Command {
	f := &workCreation{workFlags: workFlags{Global: global}}
	command := &cobra.Command{
		Use:   "work NAME -f FILE --clusters CLUSTER,...",
		Short: "Deliver Kubernetes objects to clusters as a ManifestWork",
		Long:  createWorkLong,
		Example: "  capstan create work web -f deployment.yaml -f service.yaml --clusters cluster1,cluster2\n" +
			"  capstan create work web -f manifests/ --placement default/web --overwrite\n" +
			"  capstan create work web -k overlays/prod --placement default/web --replicaset\n" +
			"  capstan create work web -f manifests/ --clusters cluster1 --overwrite --dry-run=server\n" +
			"  kubectl create configmap demo --from-literal=a=b --dry-run=client -o yaml | capstan create work demo -f - --cluster cluster1",
		Args:              options.ExactName,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(command)
	command.Flags().BoolVar(&f.overwrite, "overwrite", false,
		"replace the manifests of a work that is there already; with --placement, also take it off clusters that are not selected any more")
	command.Flags().BoolVarP(&f.replicaSet, "replicaset", "r", false, "create a ManifestWorkReplicaSet in the namespace of the placement")
	f.dryRunMode = options.AddDryRunFlag(global, command)
	command.RunE = func(command *cobra.Command, args []string) error {
		if err := f.check(); err != nil {
			return err
		}
		ctx, cancel := f.Limited(command.Context())
		defer cancel()
		d, err := f.delivery(ctx, args[0])
		if err != nil {
			return err
		}
		d.overwrite = f.overwrite
		if f.DryRun && !f.dryRunMode.OnClusters() && (d.placement == nil || f.replicaSet) {
			f.AnnounceDryRun(command)
			return d.show(f.replicaSet)
		}
		return f.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error { return f.create(ctx, hub, d) })
	}
	return command
}

// check fails if the flags make no sense together.
func (f *workCreation) check() error {
	if f.replicaSet && f.placement == "" {
		return errors.New("--replicaset: needs a placement to choose the clusters: name it with --placement NAMESPACE/NAME")
	}
	if f.replicaSet && f.dryRunMode.OnClusters() {
		return errors.New("--dry-run=server: the clusters cannot try a ManifestWorkReplicaSet: leave out --replicaset to have those of the placement try " +
			"its manifests")
	}
	return nil
}

func (f *workCreation) create(ctx context.Context, hub *hubapi.Hub, d *delivery) error {
	switch {
	case f.replicaSet:
		return d.createReplicaSet(ctx, hub)
	case f.dryRunMode.OnClusters():
		return d.printDryRun(ctx, hub)
	default:
		return d.deliver(ctx, hub)
	}
}

// deliver creates or updates the work in the clusters, and fails in the end if any were left out. It plans all of it first, so that what is
// sure to fail does before anything is written.
func (d *delivery) deliver(ctx context.Context, hub *hubapi.Hub) error {
	planned, err := d.plan(ctx, hub)
	if err != nil {
		return err
	}
	return errors.Join(d.carryOut(ctx, hub, planned), d.leftOut(planned))
}

func (d *delivery) carryOut(ctx context.Context, hub *hubapi.Hub, planned *plan) error {
	if err := d.executeAll(ctx, hub, planned.deliveries); err != nil {
		if len(planned.deletions) > 0 {
			d.Note("Work %s stays in %s that placement %s does not select any more, since not all others have it.", d.name,
				text.Count(len(planned.deletions), "cluster"), d.placement)
		}
		return err
	}
	if len(planned.deletions) == 0 {
		return nil
	}
	if err := d.checkStay(ctx, hub, planned); err != nil {
		return err
	}
	return d.executeAll(ctx, hub, planned.deletions)
}

// checkStay fails if the decisions are no more what they were before the work was delivered, which may have taken minutes.
func (d *delivery) checkStay(ctx context.Context, hub *hubapi.Hub, planned *plan) error {
	stay, err := d.decisionsStay(ctx, hub, planned.decisions)
	if err == nil && !stay {
		err = fmt.Errorf("the decisions of placement %s have changed meanwhile, so work %s was not taken off any cluster: run the command again",
			d.placement, d.name)
	}
	return err
}

// executeAll does all steps, also after one that fails.
func (d *delivery) executeAll(ctx context.Context, hub *hubapi.Hub, steps []step) error {
	var errs []error
	for _, step := range steps {
		errs = append(errs, d.execute(ctx, hub, step))
	}
	return errors.Join(errs...)
}

// execute does one step, or shows what it would create.
func (d *delivery) execute(ctx context.Context, hub *hubapi.Hub, s step) error {
	name, cluster := s.work.Name, s.work.Namespace
	switch {
	case d.DryRun && s.action == actionDelete:
		d.Say("would delete work %s in cluster %s", name, cluster)
		return nil
	case d.DryRun:
		return d.Render(s.work)
	}
	switch s.action {
	case actionKeep:
		d.Say("work %s in cluster %s already exists, with these manifests", name, cluster)
		d.noteStays(s.live)
		d.warnNotApplied(s.live)
		return nil
	case actionCreate:
		if _, err := manifestworks.Create(ctx, hub, s.work); err != nil {
			return err
		}
		d.Say("create work %s in cluster %s", name, cluster)
	case actionUpdate:
		err := updateWork(ctx, hub, cluster, name, func(live *workv1.ManifestWork) {
			live.Spec.Workload = s.work.Spec.Workload
		})
		if err != nil {
			return err
		}
		d.Say("update work %s in cluster %s", name, cluster)
		d.noteStays(s.live)
		d.warnNotApplied(s.live)
	case actionDelete:
		return d.deleteBrought(ctx, hub, s.live)
	}
	return nil
}

// deleteBrought deletes a work as it is found, unless it is no more the one that the placement has brought.
func (d *delivery) deleteBrought(ctx context.Context, hub *hubapi.Hub, planned *workv1.ManifestWork) error {
	name, cluster := planned.Name, planned.Namespace
	works := hub.Client(manifestworks.Resource).Namespace(cluster)
	deleted := false
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live := &workv1.ManifestWork{}
		if err := works.Get(ctx, name, live); err != nil {
			return err
		}
		if deleted = live.UID == planned.UID && d.follows(live); !deleted {
			return nil
		}
		return works.DeleteAsRead(ctx, live)
	})
	switch {
	case apierrors.IsNotFound(err) && !hubapi.NotServed(err):
		deleted = true
	case err != nil:
		return hub.Explain("delete work "+name+" in cluster "+cluster, err)
	}
	if deleted {
		d.Say("delete work %s in cluster %s", name, cluster)
	} else {
		d.Note("Work %s in cluster %s stays: it is no more the one that placement %s has brought there.", name, cluster, d.placement)
	}
	return nil
}

// noteStays points out that a work was in its cluster before the placement brought one there, and does not leave with it.
func (d *delivery) noteStays(live *workv1.ManifestWork) {
	if d.placement != nil && !d.follows(live) {
		d.Note("Work %s in cluster %s was there before placement %s brought it, and stays if that does not select the cluster any more. "+
			"With the label %s=%s, it follows the placement.", live.Name, live.Namespace, d.placement, fleet.LabelWorkPlacement, d.placementLabel())
	}
}

// warnNotApplied points out why nothing happens on the cluster.
func (d *delivery) warnNotApplied(live *workv1.ManifestWork) {
	if value := live.Annotations[fleet.AnnotationDryRun]; value != "" && value != fleet.DryRunNone {
		d.Note("Warning: the annotation %s holds back work %s in cluster %s. \"kubectl -n %s annotate manifestwork %s %s-\" lets it be applied.",
			fleet.AnnotationDryRun, live.Name, live.Namespace, live.Namespace, live.Name, fleet.AnnotationDryRun)
	}
}

func newWork(cluster, name string, workload workv1.ManifestsTemplate) *workv1.ManifestWork {
	return &workv1.ManifestWork{
		TypeMeta:   metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "ManifestWork"},
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name},
		Spec:       workv1.ManifestWorkSpec{Workload: workload},
	}
}

// show prints what would be created, where that does not take a hub.
func (d *delivery) show(replicaSet bool) error {
	if replicaSet {
		return d.Render(d.replicaSet())
	}
	for _, cluster := range d.clusters {
		if err := d.Render(newWork(cluster, d.name, d.workload)); err != nil {
			return err
		}
	}
	return nil
}

// warnNested points out what is hardly intended: a ManifestWork in a ManifestWork makes the cluster a hub for others.
func (d *delivery) warnNested() {
	for _, decoded := range manifest.Decode(d.workload.Manifests) {
		if decoded.Object.GroupVersionKind() == workv1.GroupVersion.WithKind("ManifestWork") {
			d.Note("Warning: ManifestWork %q is delivered to the clusters as it is, not what is in it. "+
				"If this hub is to deliver what is in it, use \"kubectl apply -f\" instead.", decoded.Object.GetName())
		}
	}
}

// updateWork changes a ManifestWork and leaves the rest of it as it is.
func updateWork(ctx context.Context, hub *hubapi.Hub, cluster, name string, change func(*workv1.ManifestWork)) error {
	works := hub.Client(manifestworks.Resource).Namespace(cluster)
	err := hubapi.Change(ctx, works, name, func(work *workv1.ManifestWork) (bool, error) {
		change(work)
		return true, nil
	})
	return hub.Explain("update work "+name+" in cluster "+cluster, err)
}
