package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/manifest"
)

// createWorkCommand is CA-31 without placements.
func (a *app) createWorkCommand() *cobra.Command {
	clusters := &clusterFlags{}
	files := manifestFiles{stdin: a.in}
	var overwrite bool
	command := &cobra.Command{
		Use:   "work NAME -f FILE --clusters CLUSTER,...",
		Short: "Deliver Kubernetes objects to clusters as a ManifestWork",
		Example: "  capstan create work web -f deployment.yaml -f service.yaml --clusters cluster1,cluster2\n" +
			"  kubectl create configmap demo --from-literal=a=b --dry-run=client -o yaml | capstan create work demo -f - --cluster cluster1",
		Args:              exactName,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	clusters.add(a, command)
	command.Flags().StringSliceVarP(&files.paths, "filename", "f", nil, "files, folders or URLs with the objects, in YAML or JSON; - is standard input")
	command.Flags().BoolVarP(&files.recursive, "recursive", "R", true, "read the folders in folders, too")
	command.Flags().BoolVar(&overwrite, "overwrite", false, "replace the manifests of a work that is there already")
	command.RunE = func(command *cobra.Command, args []string) error {
		names, err := clusters.required()
		if err != nil {
			return err
		}
		ctx, cancel := a.limited(command.Context())
		defer cancel()
		manifests, err := files.read(ctx)
		if err != nil {
			return err
		}
		a.noteNested(manifests)
		a.announceDryRun(command)
		return a.createWorks(ctx, args[0], names, workv1.ManifestsTemplate{Manifests: manifests}, overwrite)
	}
	return command
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
	if why := validation.IsDNS1123Subdomain(args[0]); len(why) > 0 {
		return fmt.Errorf("NAME: %q: %s", args[0], strings.Join(why, "; "))
	}
	return nil
}

// createWorks does what it can for each cluster, and fails if that was not everything for one of them.
func (a *app) createWorks(ctx context.Context, name string, clusters []string, workload workv1.ManifestsTemplate, overwrite bool) error {
	if a.dryRun {
		return a.renderWorks(name, clusters, workload)
	}
	hub, err := a.hub()
	if err != nil {
		return err
	}
	var errs []error
	for _, cluster := range clusters {
		errs = append(errs, a.createWork(ctx, hub, newWork(cluster, name, workload), overwrite))
	}
	return errors.Join(errs...)
}

func newWork(cluster, name string, workload workv1.ManifestsTemplate) *workv1.ManifestWork {
	return &workv1.ManifestWork{
		TypeMeta:   metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "ManifestWork"},
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name},
		Spec:       workv1.ManifestWorkSpec{Workload: workload},
	}
}

func (a *app) renderWorks(name string, clusters []string, workload workv1.ManifestsTemplate) error {
	for _, cluster := range clusters {
		if err := a.render(newWork(cluster, name, workload)); err != nil {
			return err
		}
	}
	return nil
}

// render shows an object that would be created (CA-01).
func (a *app) render(object any) error {
	content, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	a.say("---\n%s", strings.TrimSpace(string(content)))
	return nil
}

func (a *app) createWork(ctx context.Context, hub *hubapi.Hub, work *workv1.ManifestWork, overwrite bool) error {
	err := hub.CreateWork(ctx, work)
	switch {
	case err == nil:
		a.say("create work %s in cluster %s", work.Name, work.Namespace)
		return nil
	case apierrors.IsAlreadyExists(err):
		return a.updateWork(ctx, hub, work, overwrite)
	case apierrors.IsNotFound(err) && !errors.Is(err, hubapi.ErrNotAHub):
		return fmt.Errorf("cluster %s has no namespace on the hub, so it does not exist or is not accepted yet: "+
			"\"capstan get clusters\" lists the clusters, \"capstan accept --clusters %s\" accepts it: %w", work.Namespace, work.Namespace, err)
	default:
		return err
	}
}

func (a *app) updateWork(ctx context.Context, hub *hubapi.Hub, work *workv1.ManifestWork, overwrite bool) error {
	live, err := hub.Work(ctx, work.Namespace, work.Name)
	if err != nil {
		return err
	}
	if sameWorkload(live.Spec.Workload, work.Spec.Workload) {
		a.say("work %s in cluster %s already exists, with these manifests", work.Name, work.Namespace)
		return nil
	}
	if !overwrite {
		return fmt.Errorf("work %s in cluster %s already exists, with other manifests: replace them with --overwrite, or choose another name",
			work.Name, work.Namespace)
	}
	if err := hub.UpdateWorkload(ctx, work.Namespace, work.Name, work.Spec.Workload); err != nil {
		return err
	}
	a.say("update work %s in cluster %s", work.Name, work.Namespace)
	return nil
}

// sameWorkload compares what the manifests say, not how they are written.
func sameWorkload(one, other workv1.ManifestsTemplate) bool {
	return equality.Semantic.DeepEqual(manifest.Decode(one.Manifests), manifest.Decode(other.Manifests))
}
