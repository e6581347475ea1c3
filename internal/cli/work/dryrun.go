package work

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/sets"

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
	planned, err := d.plan(ctx, hub)
	if err != nil {
		return err
	}
	dryRuns, err := d.dryRun(ctx, hub, planned)
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

// dryRun has the clusters try what is to be done, all at once, and returns the results. The error is about those that could not try it, and
// those that are left out.
func (d *delivery) dryRun(ctx context.Context, hub *hubapi.Hub, planned *plan) ([]output.DryRun, error) {
	steps := slices.Concat(planned.deliveries, planned.deletions)
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
	return dryRuns, errors.Join(append(errs, d.leftOut(planned))...)
}

// dryRunStep has the cluster try the work under another name, which nobody depends on: whatever happens to this command, the work
// itself is as it was. The manifests go there only once the agent has shown that it tries what it finds.
func (d *delivery) dryRunStep(ctx context.Context, hub *hubapi.Hub, s step) (*output.DryRun, error) {
	if err := checkAvailable(ctx, hub, s.work.Namespace); err != nil {
		return nil, err
	}
	work := dryRunWork(s)
	probe := work.DeepCopy()
	probe.Spec.Workload.Manifests = probeManifests()
	_, err := manifestworks.Create(ctx, hub, probe)
	if mayBeThere(err) {
		defer d.removeDryRunWork(ctx, hub, work)
	}
	if err != nil {
		return nil, err
	}
	if err := checkTries(ctx, hub, work); err != nil {
		return nil, err
	}
	err = updateWork(ctx, hub, work.Namespace, work.Name, func(live *workv1.ManifestWork) { live.Spec.Workload = work.Spec.Workload })
	if err != nil {
		return nil, err
	}
	tried, err := awaitAnswer(ctx, hub, work, hasTried)
	if err != nil {
		return nil, err
	}
	return dryRunResult(s, tried), nil
}

// mayBeThere reports whether an object may have been created: that is so unless the hub has refused it, also if its answer has not come.
func mayBeThere(err error) bool {
	var answer apierrors.APIStatus
	return !errors.As(err, &answer) || answer.Status().Code >= http.StatusInternalServerError
}

// checkAvailable fails if the cluster is not there to try anything.
func checkAvailable(ctx context.Context, hub *hubapi.Hub, name string) error {
	cluster, err := managedclusters.Get(ctx, hub, name)
	if err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionClusterAvailable) {
		return fmt.Errorf("cluster %s is not available, so it cannot try anything: \"capstan get clusters %s\" shows how it is", cluster.Name,
			cluster.Name)
	}
	return nil
}

// probeManifests are what tells an agent that tries works from one that applies them: an object of a kind that no cluster has. Neither
// changes anything because of it, or needs a right.
func probeManifests() []workv1.Manifest {
	return []workv1.Manifest{{RawExtension: runtime.RawExtension{
		Raw: []byte(`{"apiVersion":"dry-run.capstan.io/v1","kind":"NoSuchKind","metadata":{"name":"probe"}}`),
	}}}
}

// checkTries fails unless the agent that applies the works of the cluster has tried the probe. No other object tells which agent that is:
// the one that sends the heartbeats may have been replaced without it, or the other way round.
func checkTries(ctx context.Context, hub *hubapi.Hub, probe *workv1.ManifestWork) error {
	answered, err := awaitAnswer(ctx, hub, probe, func(work *workv1.ManifestWork) bool { return hasTried(work) || hasApplied(work) })
	if err != nil {
		return err
	}
	if !hasTried(answered) {
		return fmt.Errorf("the agent that applies the works of cluster %s is not one of Capstan, and would apply what it is to try: "+
			"\"kubectl diff\" with a kubeconfig of the cluster shows what would change", probe.Namespace)
	}
	return nil
}

// awaitAnswer returns the work of a dry run once the agent has reported on it.
func awaitAnswer(ctx context.Context, hub *hubapi.Hub, work *workv1.ManifestWork, answered func(*workv1.ManifestWork) bool) (
	*workv1.ManifestWork, error) {
	var last *workv1.ManifestWork
	err := manifestworks.Wait(ctx, hub, work.Namespace, work.Name, func(found *workv1.ManifestWork) bool {
		last = found
		return answered(found)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: see whether the agent of the cluster runs and can reach its cluster", err)
	}
	return last, err
}

// hasTried reports whether an agent has tried the present manifests.
func hasTried(work *workv1.ManifestWork) bool {
	done := meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionDryRun)
	return done != nil && done.ObservedGeneration == work.Generation
}

// hasApplied reports whether an agent has done what it does with works that are not to be tried.
func hasApplied(work *workv1.ManifestWork) bool {
	return meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionApplied) != nil
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
