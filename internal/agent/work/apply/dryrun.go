package apply

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// isDryRun reports whether the work is only to be tried. With an unknown value of the annotation, it is not applied either.
func isDryRun(work *workv1.ManifestWork) bool {
	value := work.Annotations[fleet.AnnotationDryRun]
	return value != "" && value != fleet.DryRunNone
}

// dryRun has the API server try what a pass would write, and reports it. It is done once for each generation: the report is
// what the cluster was like then.
func (c *Controller) dryRun(ctx context.Context, work *workv1.ManifestWork) error {
	done := conditions.DryRunOf(work)
	isUnknown := work.Annotations[fleet.AnnotationDryRun] != fleet.DryRunServer
	if done != nil && done.ObservedGeneration == work.Generation && (done.Status == metav1.ConditionUnknown) == isUnknown {
		return nil
	}
	if isUnknown {
		conditions.SetDryRunUnknown(work, c.Clock.Now())
		return c.writeStatus(ctx, work)
	}
	amw := &workv1.AppliedManifestWork{}
	standsFor := cmp.Or(work.Annotations[fleet.AnnotationDryRunOf], work.Name)
	name := c.names.Of(standsFor)
	if err := c.managed.Get(ctx, types.NamespacedName{Name: name}, amw); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get AppliedManifestWork %s: %w", name, err)
	}
	if claimed := c.claimed(ctx, amw); claimed != nil {
		conditions.RefuseDryRun(work, claimed, c.Clock.Now())
		return c.writeStatus(ctx, work)
	}
	amw.Name = name
	results, previews := c.applier.preview(ctx, amw, work, c.lastResults.get(standsFor))
	_, obsolete := inventory(amw.Status.AppliedResources, results)
	conditions.SetPreviews(work, previews, obsolete, c.Clock.Now())
	return c.writeStatus(ctx, work)
}

// endDryRun removes the report of a dry run that is over, and reports whether there was one.
func (c *Controller) endDryRun(ctx context.Context, work *workv1.ManifestWork) (bool, error) {
	if !conditions.EndDryRun(work) {
		return false, nil
	}
	return true, c.writeStatus(ctx, work)
}

// preview tries every manifest of the work. Results and previews are in the order of the spec.
func (a *applier) preview(ctx context.Context, amw *workv1.AppliedManifestWork, work *workv1.ManifestWork,
	last *workResult) ([]manifestResult, []conditions.Preview) {
	manifests := manifest.Decode(work.Spec.Workload.Manifests)
	results, previews := make([]manifestResult, len(manifests)), make([]conditions.Preview, len(manifests))
	made, named := madeBy(manifests), namedObjects{}
	for i, m := range manifests {
		o, p := &results[i], &previews[i]
		o.ordinal = m.Ordinal
		o.err = a.previewOne(ctx, o, p, appliedmanifestwork.OwnerReference(amw), work, m, last, named)
		if o.err == nil {
			continue
		}
		if needed := made.neededBy(o); needed != "" {
			p.CannotBeTried(needed)
		} else {
			p.WouldFail(o.err)
		}
	}
	for i := range results {
		previews[i].Manifest = results[i].resourceMeta()
	}
	return results, previews
}

// previewOne fails if the manifest could not be applied.
func (a *applier) previewOne(ctx context.Context, o *manifestResult, p *conditions.Preview, owner metav1.OwnerReference,
	work *workv1.ManifestWork, m manifest.Manifest, last *workResult, named namedObjects) error {
	if m.Err != nil {
		return m.Err
	}
	o.identity = manifest.Identify(m.Object)
	if err := a.resolve(o, m.Object); err != nil {
		return err
	}
	if err := named.add(o); err != nil {
		return err
	}
	t := newTask(o, work, owner, m.Object)
	t.required = m.Object.DeepCopy() // the owner may not exist yet
	t.before = last.find(o.object())
	live, err := a.objects.Resource(o.mapping.Resource).Namespace(o.identity.Namespace).Get(ctx, o.identity.Name, metav1.GetOptions{})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	isMissing := apierrors.IsNotFound(err)
	var tried *unstructured.Unstructured
	if err = a.check(ctx, t); err == nil {
		tried, err = a.write(ctx, t, []string{metav1.DryRunAll})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.identity, a.explain(ctx, o.object(), err))
	}
	if isMissing {
		p.WouldCreate()
	} else {
		p.WouldChange(manifest.Diff(t.withoutIgnored(ctx, live), t.withoutIgnored(ctx, tried)))
	}
	return nil
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

// neededBy is the object without which a manifest fails, if the work has that, too.
func (m made) neededBy(o *manifestResult) string {
	if !o.resolved {
		return m.kinds[o.identity.Group+"/"+o.identity.Kind]
	}
	if apierrors.IsNotFound(o.err) {
		return m.namespaces[o.identity.Namespace]
	}
	return ""
}
