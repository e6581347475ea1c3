package apply

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/applied"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// maxPreview is how many bytes the reports on all manifests of a work may take together: they go into its status.
const maxPreview = 200 << 10

// isDryRun tells whether the work is only to be tried. A value that nobody knows is no leave to apply.
func isDryRun(work *workv1.ManifestWork) bool {
	value := work.Annotations[fleet.AnnotationDryRun]
	return value != "" && value != fleet.DryRunNone
}

// dryRun has the API server try what a pass would write, and reports it. It is done once for each generation: the report is
// what the cluster was like then.
func (c *Controller) dryRun(ctx context.Context, work *workv1.ManifestWork) error {
	done := meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionDryRun)
	unknown := work.Annotations[fleet.AnnotationDryRun] != fleet.DryRunServer
	if done != nil && done.ObservedGeneration == work.Generation && (done.Status == metav1.ConditionUnknown) == unknown {
		return nil
	}
	if unknown {
		c.renewCondition(&work.Status.Conditions, metav1.Condition{
			Type: fleet.ConditionDryRun, Status: metav1.ConditionUnknown, Reason: fleet.ReasonDryRunUnknown, ObservedGeneration: work.Generation,
			Message: fmt.Sprintf("The annotation %s is %q; it must be %q or %q. Nothing is applied until it is", fleet.AnnotationDryRun,
				work.Annotations[fleet.AnnotationDryRun], fleet.DryRunServer, fleet.DryRunNone),
		})
		return c.writeStatus(ctx, work)
	}
	amw := &workv1.AppliedManifestWork{}
	standsFor := cmp.Or(work.Annotations[fleet.AnnotationDryRunOf], work.Name)
	name := fleet.AppliedManifestWorkName(c.HubHash, standsFor)
	if err := c.managed.Get(ctx, types.NamespacedName{Name: name}, amw); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get AppliedManifestWork %s: %w", name, err)
	}
	if claimed := c.claimed(ctx, amw); claimed != nil {
		c.renewCondition(&work.Status.Conditions, metav1.Condition{
			Type: fleet.ConditionDryRun, Status: metav1.ConditionFalse, Reason: fleet.ReasonDryRunFailed, ObservedGeneration: work.Generation,
			Message: claimed.Error(),
		})
		return c.writeStatus(ctx, work)
	}
	amw.Name = name
	previews := c.applier.preview(ctx, amw, work, c.passes.get(standsFor))
	c.reportPreviews(work, amw, previews)
	return c.writeStatus(ctx, work)
}

// endDryRun drops the report of a dry run that is over. It tells whether it did.
func (c *Controller) endDryRun(ctx context.Context, work *workv1.ManifestWork) (bool, error) {
	if meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionDryRun) == nil {
		return false, nil
	}
	meta.RemoveStatusCondition(&work.Status.Conditions, fleet.ConditionDryRun)
	manifests := &work.Status.ResourceStatus.Manifests
	for i := range *manifests {
		meta.RemoveStatusCondition(&(*manifests)[i].Conditions, fleet.ConditionDryRun)
	}
	*manifests = slices.DeleteFunc(*manifests, func(m workv1.ManifestCondition) bool { return len(m.Conditions) == 0 })
	return true, c.writeStatus(ctx, work)
}

// preview is what would become of one manifest.
type preview struct {
	outcome
	reason  string
	message string
}

// preview tries every manifest of the work.
func (a *applier) preview(ctx context.Context, amw *workv1.AppliedManifestWork, work *workv1.ManifestWork, last *pass) []preview {
	manifests := manifest.Decode(work.Spec.Workload.Manifests)
	previews := make([]preview, len(manifests))
	made := madeBy(manifests)
	for i, m := range manifests {
		p := &previews[i]
		p.ordinal = m.Ordinal
		p.reason, p.message = a.previewOne(ctx, &p.outcome, applied.OwnerReference(amw), work, m, last)
		if p.err != nil {
			p.reason, p.message = fleet.ReasonWouldFail, p.err.Error()
			if first := made.neededBy(p); first != "" {
				p.reason, p.message = fleet.ReasonCannotBeTried, fmt.Sprintf("It cannot be tried before %s is there, which is in this work, too", first)
			}
		}
	}
	return previews
}

func (a *applier) previewOne(ctx context.Context, o *outcome, owner metav1.OwnerReference, work *workv1.ManifestWork, m manifest.Manifest,
	last *pass) (reason, message string) {
	if o.err = m.Err; o.err != nil {
		return "", ""
	}
	o.identity = manifest.Identify(m.Object)
	if o.err = a.resolve(o, m.Object); o.err != nil {
		return "", ""
	}
	t := newTask(o, work, owner, m.Object)
	t.required = m.Object.DeepCopy() // the owner may not exist yet
	t.before = last.find(o.object())
	live, err := a.objects.Resource(o.mapping.Resource).Namespace(o.identity.Namespace).Get(ctx, o.identity.Name, metav1.GetOptions{})
	if client.IgnoreNotFound(err) != nil {
		o.err = err
		return "", ""
	}
	isMissing := apierrors.IsNotFound(err)
	var tried *unstructured.Unstructured
	if err = a.check(ctx, t); err == nil {
		tried, err = a.write(ctx, t, []string{metav1.DryRunAll})
	}
	switch {
	case err != nil:
		o.err = fmt.Errorf("%s: %w", o.identity, a.explain(ctx, o.object(), err))
		return "", ""
	case isMissing:
		return fleet.ReasonWouldCreate, "It would be created"
	}
	if changes := manifest.Diff(t.withoutIgnored(ctx, live), t.withoutIgnored(ctx, tried)); len(changes) > 0 {
		return fleet.ReasonWouldChange, strings.Join(changes, "; ")
	}
	return fleet.ReasonWouldNotChange, "It is as the manifest says"
}

// withoutIgnored drops the fields that server-side apply gives up, which takes more than one request and so cannot be tried.
func (t *task) withoutIgnored(ctx context.Context, object *unstructured.Unstructured) *unstructured.Unstructured {
	if t.config.UpdateStrategy.Type != workv1.UpdateStrategyTypeServerSideApply {
		return object
	}
	s, err := newServerSide(ctx, &writer{}, t)
	if err != nil {
		return object
	}
	content, err := s.ignored(object).Without(ctx, object.Object)
	if err != nil {
		return object
	}
	return &unstructured.Unstructured{Object: content}
}

// made are the namespaces and kinds that a work makes itself.
type made struct{ namespaces, kinds map[string]string }

func madeBy(manifests []manifest.Manifest) made {
	m := made{namespaces: map[string]string{}, kinds: map[string]string{}}
	for _, one := range manifests {
		if one.Err != nil {
			continue
		}
		switch id := manifest.Identify(one.Object); id.GroupKind().String() {
		case "Namespace":
			m.namespaces[id.Name] = id.String()
		case "CustomResourceDefinition.apiextensions.k8s.io":
			group, _, _ := unstructured.NestedString(one.Object.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(one.Object.Object, "spec", "names", "kind")
			m.kinds[group+"/"+kind] = id.String()
		}
	}
	return m
}

// neededBy is what a manifest that would fail misses, if the work makes that.
func (m made) neededBy(p *preview) string {
	if !p.resolved {
		return m.kinds[p.identity.Group+"/"+p.identity.Kind]
	}
	if apierrors.IsNotFound(p.err) {
		return m.namespaces[p.identity.Namespace]
	}
	return ""
}

func (c *Controller) reportPreviews(work *workv1.ManifestWork, amw *workv1.AppliedManifestWork, previews []preview) {
	room := min(maxMessage, maxPreview/max(len(previews), 1))
	count := map[string]int{}
	manifests := make([]workv1.ManifestCondition, 0, len(previews))
	var failed []string
	outcomes := make([]outcome, 0, len(previews))
	for i := range previews {
		p := &previews[i]
		status := workv1.ManifestCondition{ResourceMeta: p.resourceMeta()}
		if old := findStatus(work.Status.ResourceStatus.Manifests, status.ResourceMeta); old != nil {
			old.DeepCopyInto(&status)
			status.ResourceMeta = p.resourceMeta()
		}
		c.renewCondition(&status.Conditions, metav1.Condition{
			Type: fleet.ConditionDryRun, Status: verdict(p.reason), Reason: p.reason, Message: clipTo(p.message, room),
			ObservedGeneration: work.Generation,
		})
		if p.reason == fleet.ReasonWouldFail {
			failed = append(failed, clip(p.message))
		}
		count[p.reason]++
		manifests, outcomes = append(manifests, status), append(outcomes, p.outcome)
	}
	work.Status.ResourceStatus.Manifests = manifests
	_, obsolete := inventory(amw.Status.AppliedResources, outcomes)
	cond := metav1.Condition{
		Type: fleet.ConditionDryRun, Status: metav1.ConditionTrue, Reason: fleet.ReasonDryRunComplete, ObservedGeneration: work.Generation,
		Message: fmt.Sprintf("Of %d manifests, %d would be created, %d changed, %d left as they are, and %d cannot be tried; %d objects would be deleted%s",
			len(previews), count[fleet.ReasonWouldCreate], count[fleet.ReasonWouldChange], count[fleet.ReasonWouldNotChange],
			count[fleet.ReasonCannotBeTried],
			len(obsolete), namesOf(obsolete)),
	}
	if len(failed) > 0 {
		cond.Status, cond.Reason = metav1.ConditionFalse, fleet.ReasonDryRunFailed
		cond.Message = fmt.Sprintf("%d of %d manifests would fail: %s. %s", len(failed), len(previews), summary(failed), cond.Message)
	}
	c.renewCondition(&work.Status.Conditions, cond)
}

func verdict(reason string) metav1.ConditionStatus {
	switch reason {
	case fleet.ReasonWouldFail:
		return metav1.ConditionFalse
	case fleet.ReasonCannotBeTried:
		return metav1.ConditionUnknown
	default:
		return metav1.ConditionTrue
	}
}

func namesOf(resources []workv1.AppliedManifestResourceMeta) string {
	if len(resources) == 0 {
		return ""
	}
	names := make([]string, 0, len(resources))
	for _, r := range resources {
		names = append(names, r.Resource+" "+applied.Object(r).NamespacedName.String())
	}
	return ": " + clipTo(summary(names), maxMessage)
}
