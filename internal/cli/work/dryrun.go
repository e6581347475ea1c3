package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/sets"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/manifestworks"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

const (
	// longestDryRunStem is how much of the name of a work is in the name of that for its dry run.
	longestDryRunStem = 200
	// cleanupTimeout is how long it may take to remove the work of a dry run when the command is interrupted.
	cleanupTimeout = 10 * time.Second
)

// printDryRun is "create work --dry-run=server": it shows what would change, and fails if that cannot be done.
func (d *delivery) printDryRun(ctx context.Context, hub *hubapi.Hub) error {
	dryRuns, err := d.dryRun(ctx, hub)
	return errors.Join(d.Print(output.Tree, output.DryRuns(dryRuns)), err, wouldFail(dryRuns))
}

// wouldFail is an error if a cluster would not take all of its manifests.
func wouldFail(dryRuns []output.DryRun) error {
	var errs []error
	for _, d := range dryRuns {
		if n := d.Count(fleet.ReasonWouldFail); n > 0 {
			errs = append(errs, fmt.Errorf("cluster %s would not take %d of the manifests of work %s: see above why", d.Cluster, n, d.Work))
		}
	}
	return errors.Join(errs...)
}

// dryRun has the clusters try what is to be done, all at once, and returns the results. The error is about those that could not try it.
func (d *delivery) dryRun(ctx context.Context, hub *hubapi.Hub) ([]output.DryRun, error) {
	steps, err := d.plan(ctx, hub)
	if err != nil {
		return nil, err
	}
	progress := d.Progress()
	defer progress.Close()
	found := make([]*output.DryRun, len(steps))
	errs := make([]error, len(steps))
	var group errgroup.Group
	group.SetLimit(maxConcurrentRequests)
	for i, s := range steps {
		group.Go(func() error {
			if s.action == actionDelete {
				found[i] = dryRunDeletion(s.live)
				return nil
			}
			progress.Wait(s.work.Namespace, "trying")
			found[i], errs[i] = d.dryRunStep(ctx, hub, s)
			progress.Wait(s.work.Namespace, "")
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs, in the order of the clusters
	var dryRuns []output.DryRun
	for _, t := range found {
		if t != nil {
			dryRuns = append(dryRuns, *t)
		}
	}
	return dryRuns, errors.Join(errs...)
}

// dryRunStep has the cluster try the work under another name, which nobody depends on: whatever happens to this command, the work
// itself is as it was.
func (d *delivery) dryRunStep(ctx context.Context, hub *hubapi.Hub, s step) (*output.DryRun, error) {
	cluster, err := managedclusters.GetWithManagers(ctx, hub, s.work.Namespace)
	if err != nil {
		return nil, err
	}
	if err := checkDryRun(cluster); err != nil {
		return nil, err
	}
	work, err := manifestworks.Create(ctx, hub, dryRunWork(s))
	if err != nil {
		return nil, err
	}
	defer d.removeDryRunWork(ctx, hub, work)
	err = manifestworks.Wait(ctx, hub, work.Namespace, work.Name, func(found *workv1.ManifestWork) bool {
		work = found
		done := meta.FindStatusCondition(found.Status.Conditions, fleet.ConditionDryRun)
		return done != nil && done.ObservedGeneration == found.Generation
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%w: see whether the agent of the cluster runs and can reach its cluster", err)
	}
	if err != nil {
		return nil, err
	}
	return dryRunResult(s, work), nil
}

// checkDryRun fails if the cluster would apply what it is to try, or is not available.
func checkDryRun(cluster *clusterv1.ManagedCluster) error {
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionClusterAvailable) {
		return fmt.Errorf("cluster %s is not available, so it cannot try anything: \"capstan get clusters %s\" shows how it is", cluster.Name,
			cluster.Name)
	}
	ours := slices.ContainsFunc(cluster.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == fleet.AgentUserAgent })
	if !ours {
		return fmt.Errorf("the agent of cluster %s is not one of Capstan, and would apply what it is to try: \"kubectl diff\" with a kubeconfig of the "+
			"cluster shows what would change", cluster.Name)
	}
	return nil
}

// dryRunWork is the work as it would be, to be tried.
func dryRunWork(s step) *workv1.ManifestWork {
	stem := s.work.Name[:min(len(s.work.Name), longestDryRunStem)]
	work := newWork(s.work.Namespace, stem+"-dry-run-"+rand.String(5), s.work.Spec.Workload)
	work.Annotations = map[string]string{fleet.AnnotationDryRun: fleet.DryRunServer, fleet.AnnotationDryRunOf: s.work.Name}
	if s.live != nil {
		s.live.Spec.DeepCopyInto(&work.Spec)
		work.Spec.Workload = s.work.Spec.Workload
	}
	return work
}

// removeDryRunWork removes the work of a dry run also when the command was interrupted. One that stays does no harm.
func (d *delivery) removeDryRunWork(ctx context.Context, hub *hubapi.Hub, work *workv1.ManifestWork) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := deleteWork(ctx, hub, work.Namespace, work.Name); err != nil {
		d.Note("Warning: the work %s, with which cluster %s tried this, is still there: %v", work.Name, work.Namespace, err)
	}
}

// dryRunResult is the result of a dry run, with what the work would no longer name.
func dryRunResult(s step, work *workv1.ManifestWork) *output.DryRun {
	done := meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionDryRun)
	result := &output.DryRun{Work: s.work.Name, Cluster: s.work.Namespace, Message: done.Message}
	for _, m := range work.Status.ResourceStatus.Manifests {
		if c := meta.FindStatusCondition(m.Conditions, fleet.ConditionDryRun); c != nil {
			result.Manifests = append(result.Manifests, output.DryRunManifest{
				Group: m.ResourceMeta.Group, Kind: m.ResourceMeta.Kind, Namespace: m.ResourceMeta.Namespace, Name: m.ResourceMeta.Name,
				Result: c.Reason, Message: c.Message,
			})
		}
	}
	if s.live != nil {
		result.Manifests = append(result.Manifests, dropped(s.live, s.work.Spec.Workload)...)
	}
	return result
}

// dryRunDeletion is the result of taking a work off a cluster.
func dryRunDeletion(live *workv1.ManifestWork) *output.DryRun {
	return &output.DryRun{
		Work: live.Name, Cluster: live.Namespace, Message: "The work would be deleted: the placement does not select the cluster any more",
		Manifests: dropped(live, workv1.ManifestsTemplate{}),
	}
}

// dropped are the objects of a work that are not in its new manifests.
func dropped(live *workv1.ManifestWork, workload workv1.ManifestsTemplate) []output.DryRunManifest {
	kept := sets.New[objectKey]()
	for _, m := range manifest.Decode(workload.Manifests) {
		if m.Err == nil {
			kept.Insert(keyOf(m))
		}
	}
	result, message := output.ReasonWouldDelete, ""
	if option := live.Spec.DeleteOption; option != nil {
		switch option.PropagationPolicy {
		case workv1.DeletePropagationPolicyTypeOrphan:
			result = output.ReasonWouldOrphan
		case workv1.DeletePropagationPolicyTypeSelectivelyOrphan:
			message = "unless the orphaningRules of the work name it"
		case workv1.DeletePropagationPolicyTypeForeground:
		}
	}
	var removed []output.DryRunManifest
	for _, m := range manifest.Decode(live.Spec.Workload.Manifests) {
		if m.Err != nil || kept.Has(keyOf(m)) {
			continue
		}
		key := keyOf(m)
		removed = append(removed, output.DryRunManifest{Group: key.group, Kind: key.kind, Namespace: key.namespace, Name: key.name,
			Result: result, Message: message})
	}
	return removed
}

// objectKey is which object a manifest is about, in whatever version.
type objectKey struct{ group, kind, namespace, name string }

func keyOf(m manifest.Manifest) objectKey {
	id := manifest.Identify(m.Object)
	return objectKey{id.Group, id.Kind, id.Namespace, id.Name}
}
