package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

const createWorkLong = `Deliver Kubernetes objects to clusters as a ManifestWork.

The clusters are those of --cluster and --clusters, or those that a placement has selected so far. With --overwrite, the work
follows the placement: it is deleted from clusters that are not selected any more. With --replicaset, the hub does that by
itself from then on.

All files and clusters are checked before anything is written. --dry-run shows what would be created; --dry-run=server has each
cluster try it, and shows what would change there, as "capstan diff work" does.`

// workFlags are the flags of commands that bring objects to clusters.
type workFlags struct {
	files     manifestFiles
	clusters  clusterFlags
	placement string
}

func (f *workFlags) add(a *app, command *cobra.Command) {
	f.files.add(a, command)
	f.clusters.add(a, command)
	command.Flags().StringVar(&f.placement, "placement", "", "the clusters that this placement has selected, as NAMESPACE/NAME")
	complete(command, "placement", a.completePlacementRef)
	command.MarkFlagsMutuallyExclusive("placement", "cluster")
	command.MarkFlagsMutuallyExclusive("placement", "clusters")
}

// delivery is what is to be where.
type delivery struct {
	name     string
	workload workv1.ManifestsTemplate
	// Either there are clusters, or a placement that chooses them.
	clusters  []string
	placement *types.NamespacedName
	overwrite bool
}

// delivery reads the files, and fails if the flags make no sense.
func (f *workFlags) delivery(ctx context.Context, a *app, name string) (*delivery, error) {
	d := &delivery{name: name}
	var err error
	if f.placement == "" {
		if d.clusters, err = f.clusters.names(); err == nil && len(d.clusters) == 0 {
			err = errors.New("either --cluster or --clusters needs to be set, or --placement; \"capstan get clusters\" lists the clusters there are")
		}
	} else {
		d.placement, err = parsePlacementRef("--placement", f.placement)
	}
	if err != nil {
		return nil, err
	}
	if d.workload.Manifests, err = f.files.read(ctx); err != nil {
		return nil, err
	}
	a.noteNested(d.workload.Manifests)
	return d, nil
}

// parsePlacementRef reads NAMESPACE/NAME.
func parsePlacementRef(flag, text string) (*types.NamespacedName, error) {
	namespace, name, found := strings.Cut(text, "/")
	if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, fmt.Errorf("%s: %q: must be the namespace and the name of a placement, such as default/web; \"capstan get placements\" lists those there are",
			flag, text)
	}
	return &types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// createWorkCommand is "capstan create work".
func (a *app) createWorkCommand() *cobra.Command {
	f := &workFlags{}
	var overwrite, replicaSet bool
	command := &cobra.Command{
		Use:   "work NAME -f FILE --clusters CLUSTER,...",
		Short: "Deliver Kubernetes objects to clusters as a ManifestWork",
		Long:  createWorkLong,
		Example: "  capstan create work web -f deployment.yaml -f service.yaml --clusters cluster1,cluster2\n" +
			"  capstan create work web -f manifests/ --placement default/web --overwrite\n" +
			"  capstan create work web -k overlays/prod --placement default/web --replicaset\n" +
			"  capstan create work web -f manifests/ --clusters cluster1 --overwrite --dry-run=server\n" +
			"  kubectl create configmap demo --from-literal=a=b --dry-run=client -o yaml | capstan create work demo -f - --cluster cluster1",
		Args:              exactName,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(a, command)
	command.Flags().BoolVar(&overwrite, "overwrite", false,
		"replace the manifests of a work that is there already; with --placement, also take it off clusters that are not selected any more")
	command.Flags().BoolVarP(&replicaSet, "replicaset", "r", false, "create a ManifestWorkReplicaSet in the namespace of the placement")
	dryRun := a.addDryRunFlag(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		if replicaSet && f.placement == "" {
			return errors.New("--replicaset: needs a placement to choose the clusters: name it with --placement NAMESPACE/NAME")
		}
		if replicaSet && dryRun.onClusters() {
			return errors.New("--dry-run=server: the clusters cannot try a ManifestWorkReplicaSet: leave out --replicaset to have those of the placement try " +
				"its manifests")
		}
		ctx, cancel := a.limited(command.Context())
		defer cancel()
		d, err := f.delivery(ctx, a, args[0])
		if err != nil {
			return err
		}
		d.overwrite = overwrite
		if a.dryRun && !dryRun.onClusters() && (d.placement == nil || replicaSet) {
			a.announceDryRun(command)
			return a.renderDelivery(d, replicaSet)
		}
		return a.withHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			switch {
			case replicaSet:
				return a.createReplicaSet(ctx, hub, d)
			case dryRun.onClusters():
				return a.tryOut(ctx, hub, d)
			default:
				return a.deliver(ctx, hub, d)
			}
		})
	}
	return command
}

// deliver brings the work to the clusters. It plans all of it first, so that what can be known to fail fails before anything
// is written.
func (a *app) deliver(ctx context.Context, hub *hubapi.Hub, d *delivery) error {
	steps, err := d.plan(ctx, hub)
	if err != nil {
		return err
	}
	var errs []error
	for _, step := range steps {
		errs = append(errs, a.take(ctx, hub, step))
	}
	return errors.Join(errs...)
}

// take does one step, or shows what it would create.
func (a *app) take(ctx context.Context, hub *hubapi.Hub, s step) error {
	name, cluster := s.work.Name, s.work.Namespace
	switch {
	case a.dryRun && s.action == actionDelete:
		a.say("would delete work %s in cluster %s", name, cluster)
		return nil
	case a.dryRun:
		return a.render(s.work)
	}
	switch s.action {
	case actionKeep:
		a.say("work %s in cluster %s already exists, with these manifests", name, cluster)
		a.noteHeldBack(s.live)
		return nil
	case actionCreate:
		if _, err := hub.CreateWork(ctx, s.work); err != nil {
			return err
		}
		a.say("create work %s in cluster %s", name, cluster)
	case actionUpdate:
		err := hub.UpdateWork(ctx, cluster, name, func(live *workv1.ManifestWork) {
			live.Spec.Workload = s.work.Spec.Workload
			for key, value := range s.work.Labels {
				metav1.SetMetaDataLabel(&live.ObjectMeta, key, value)
			}
		})
		if err != nil {
			return err
		}
		a.say("update work %s in cluster %s", name, cluster)
		a.noteHeldBack(s.live)
	case actionDelete:
		if err := hub.DeleteWork(ctx, cluster, name); err != nil {
			return err
		}
		a.say("delete work %s in cluster %s", name, cluster)
	}
	return nil
}

// noteHeldBack points out why nothing happens on the cluster.
func (a *app) noteHeldBack(live *workv1.ManifestWork) {
	if value := live.Annotations[fleet.AnnotationDryRun]; value != "" && value != fleet.DryRunNone {
		a.note("Warning: the annotation %s holds back work %s in cluster %s. \"kubectl -n %s annotate manifestwork %s %s-\" lets it be applied.",
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

// renderDelivery shows what would be created, where that is known without a hub.
func (a *app) renderDelivery(d *delivery, replicaSet bool) error {
	if replicaSet {
		return a.render(d.replicaSet())
	}
	for _, cluster := range d.clusters {
		if err := a.render(newWork(cluster, d.name, d.workload)); err != nil {
			return err
		}
	}
	return nil
}

// render shows an object that would be created.
func (a *app) render(object any) error {
	content, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	a.say("---\n%s", strings.TrimSpace(string(content)))
	return nil
}

// noteNested points out what is hardly meant: a ManifestWork in a ManifestWork makes the cluster a hub for others.
func (a *app) noteNested(manifests []workv1.Manifest) {
	for _, decoded := range manifest.Decode(manifests) {
		if decoded.Object.GroupVersionKind() == workv1.GroupVersion.WithKind("ManifestWork") {
			a.note("Warning: ManifestWork %q is delivered to the clusters as it is, not what is in it. "+
				"If this hub is to deliver what is in it, use \"kubectl apply -f\" instead.", decoded.Object.GetName())
		}
	}
}

// exactName accepts one argument that can be the name of an object.
func exactName(command *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%d names given, want 1: %s", len(args), command.UseLine())
	}
	if namespace, name, found := strings.Cut(args[0], "/"); found && command.Flags().Lookup("namespace") != nil {
		return fmt.Errorf("NAME: %q: the namespace has a flag of its own: %s --namespace %s", args[0], name, namespace)
	}
	return checkObjectName(args[0])
}

// checkObjectName says what is wrong with the name of an object.
func checkObjectName(name string) error {
	if why := validation.IsDNS1123Subdomain(name); len(why) > 0 {
		return fmt.Errorf("NAME: %q: %s", name, strings.Join(why, "; "))
	}
	return nil
}
