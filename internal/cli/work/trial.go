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
	// longestTrialStem is how much of the name of a work begins the name of its trial.
	longestTrialStem = 200
	// cleanupTimeout is how long a trial may take to be removed when the command is interrupted.
	cleanupTimeout = 10 * time.Second
)

// tryOut is "create work --dry-run=server": it shows what would change, and fails if that cannot be done.
func (d *delivery) tryOut(ctx context.Context, hub *hubapi.Hub) error {
	trials, err := d.try(ctx, hub)
	return errors.Join(d.Print(output.Tree, output.DryRuns(trials)), err, wouldFail(trials))
}

// wouldFail is an error if a cluster would not take all of its manifests.
func wouldFail(trials []output.DryRun) error {
	var errs []error
	for _, t := range trials {
		if n := t.Count(fleet.ReasonWouldFail); n > 0 {
			errs = append(errs, fmt.Errorf("cluster %s would not take %d of the manifests of work %s: see above why", t.Cluster, n, t.Work))
		}
	}
	return errors.Join(errs...)
}

// try has the clusters try what is to be done, all at once, and returns what they say. The error is about those that could not
// be asked.
func (d *delivery) try(ctx context.Context, hub *hubapi.Hub) ([]output.DryRun, error) {
	steps, err := d.plan(ctx, hub)
	if err != nil {
		return nil, err
	}
	progress := d.Progress()
	defer progress.Close()
	found := make([]*output.DryRun, len(steps))
	errs := make([]error, len(steps))
	var group errgroup.Group
	group.SetLimit(requestsAtOnce)
	for i, s := range steps {
		group.Go(func() error {
			if s.action == actionDelete {
				found[i] = deletionTrial(s.live)
				return nil
			}
			progress.Wait(s.work.Namespace, "trying")
			found[i], errs[i] = d.tryStep(ctx, hub, s)
			progress.Wait(s.work.Namespace, "")
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs, in the order of the clusters
	var trials []output.DryRun
	for _, t := range found {
		if t != nil {
			trials = append(trials, *t)
		}
	}
	return trials, errors.Join(errs...)
}

// tryStep has the cluster try the work under another name, which nobody depends on: whatever happens to this command, the work
// itself is as it was.
func (d *delivery) tryStep(ctx context.Context, hub *hubapi.Hub, s step) (*output.DryRun, error) {
	cluster, err := managedclusters.GetWithManagers(ctx, hub, s.work.Namespace)
	if err != nil {
		return nil, err
	}
	if err := canTry(cluster); err != nil {
		return nil, err
	}
	tried, err := manifestworks.Create(ctx, hub, trialOf(s))
	if err != nil {
		return nil, err
	}
	defer d.removeTrial(ctx, hub, tried)
	err = manifestworks.Wait(ctx, hub, tried.Namespace, tried.Name, func(work *workv1.ManifestWork) bool {
		tried = work
		done := meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionDryRun)
		return done != nil && done.ObservedGeneration == work.Generation
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%w: see whether the agent of the cluster runs and can reach its cluster", err)
	}
	if err != nil {
		return nil, err
	}
	return reportOf(s, tried), nil
}

// canTry fails if the cluster would apply what it is to try, or would not answer.
func canTry(cluster *clusterv1.ManagedCluster) error {
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

// trialOf is the work as it would be, to be tried.
func trialOf(s step) *workv1.ManifestWork {
	stem := s.work.Name[:min(len(s.work.Name), longestTrialStem)]
	trial := newWork(s.work.Namespace, stem+"-dry-run-"+rand.String(5), s.work.Spec.Workload)
	trial.Annotations = map[string]string{fleet.AnnotationDryRun: fleet.DryRunServer, fleet.AnnotationDryRunOf: s.work.Name}
	if s.live != nil {
		s.live.Spec.DeepCopyInto(&trial.Spec)
		trial.Spec.Workload = s.work.Spec.Workload
	}
	return trial
}

// removeTrial removes a trial also when the command was interrupted. One that stays does no harm.
func (d *delivery) removeTrial(ctx context.Context, hub *hubapi.Hub, trial *workv1.ManifestWork) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := deleteWork(ctx, hub, trial.Namespace, trial.Name); err != nil {
		d.Note("Warning: the work %s, with which cluster %s tried this, is still there: %v", trial.Name, trial.Namespace, err)
	}
}

// reportOf is what came of a trial, and what the work would no longer name.
func reportOf(s step, tried *workv1.ManifestWork) *output.DryRun {
	done := meta.FindStatusCondition(tried.Status.Conditions, fleet.ConditionDryRun)
	t := &output.DryRun{Work: s.work.Name, Cluster: s.work.Namespace, Message: done.Message}
	for _, m := range tried.Status.ResourceStatus.Manifests {
		if c := meta.FindStatusCondition(m.Conditions, fleet.ConditionDryRun); c != nil {
			t.Manifests = append(t.Manifests, output.DryRunManifest{
				Group: m.ResourceMeta.Group, Kind: m.ResourceMeta.Kind, Namespace: m.ResourceMeta.Namespace, Name: m.ResourceMeta.Name,
				Result: c.Reason, Message: c.Message,
			})
		}
	}
	if s.live != nil {
		t.Manifests = append(t.Manifests, dropped(s.live, s.work.Spec.Workload)...)
	}
	return t
}

// deletionTrial is what would come of taking a work off a cluster.
func deletionTrial(live *workv1.ManifestWork) *output.DryRun {
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
	var gone []output.DryRunManifest
	for _, m := range manifest.Decode(live.Spec.Workload.Manifests) {
		if m.Err != nil || kept.Has(keyOf(m)) {
			continue
		}
		key := keyOf(m)
		gone = append(gone, output.DryRunManifest{Group: key.group, Kind: key.kind, Namespace: key.namespace, Name: key.name, Result: result,
			Message: message})
	}
	return gone
}

// objectKey is which object a manifest is about, in whatever version.
type objectKey struct{ group, kind, namespace, name string }

func keyOf(m manifest.Manifest) objectKey {
	id := manifest.Identify(m.Object)
	return objectKey{id.Group, id.Kind, id.Namespace, id.Name}
}
