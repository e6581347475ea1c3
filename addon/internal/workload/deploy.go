package workload

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/addon/ownership"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// deployTo plans the works for the objects of a side. A cluster that is being deleted or is not to have anything new keeps
// what it has.
func (p *planner) deployTo(s side) error {
	works := p.worksAt(s)
	switch {
	case p.Workload == nil && p.Unrendered != nil:
		p.Conditions = append(p.Conditions, falseCondition(s.condition, fleet.ReasonManifestWorkApplyFailed,
			"The manifests could not be made, so those on the cluster stay as they are: "+p.Unrendered.Error()))
		return nil //nolint:nilerr // the condition has it
	case p.Workload == nil || s.cluster == nil || !s.cluster.DeletionTimestamp.IsZero():
		return nil
	case !s.takesNew():
		p.Conditions = append(p.Conditions, falseCondition(s.condition, fleet.ReasonManifestWorkApplyFailed,
			fmt.Sprintf("Cluster %s is not accepted; once it is accepted again, the add-on is deployed there", s.namespace)))
		return nil
	}
	hashes, err := config.Annotation(p.Installation.AddOn.Status.ConfigReferences)
	if err != nil {
		return err
	}
	objects := p.at(s, false)
	bins := split(objects, works, p.MaxBytes)
	progress := progress{side: s}
	for _, b := range bins {
		desired := p.deployWork(s, b, hashes, b.manifests(objects))
		progress.add(desired.Name, b, p.write(b, desired))
	}
	if p.deploysNothing() {
		p.Conditions = append(p.Conditions, trueCondition(s.condition, fleet.ReasonAddOnNothingToApply, config.NothingMessage(hashes)))
		return nil
	}
	if c := progress.condition(p.Installation.AddOn); c != nil {
		p.Conditions = append(p.Conditions, *c)
	}
	return nil
}

// deploysNothing reports whether neither cluster is to have anything of the add-on. Hooks do not count: they run when it is removed.
func (p *planner) deploysNothing() bool {
	return len(p.at(p.managedSide(), false)) == 0 && len(p.at(p.hostingSide(), false)) == 0
}

// worksAt returns the works that deploy the objects of a side.
func (p *planner) worksAt(s side) (works []*work) {
	for _, w := range p.works {
		if !w.Hook && w.Hosting == s.hosting && w.Namespace == s.namespace {
			works = append(works, w)
		}
	}
	return works
}

// write plans the creation or update of a work, and reports whether there is a difference.
func (p *planner) write(b *bin, desired *workv1.ManifestWork) bool {
	switch {
	case b.closed():
		return true // it is created again when it is gone
	case b.work == nil:
		p.Create = append(p.Create, desired)
	case len(desired.Spec.Workload.Manifests) == 0:
		p.Delete = append(p.Delete, b.work.ManifestWork)
	case !same(b.work.ManifestWork, desired):
		p.Update = append(p.Update, desired)
	default:
		return false
	}
	return true
}

// same compares what this package sets of a work, and ignores what other writers have set.
func same(existing, desired *workv1.ManifestWork) bool {
	return maps.Equal(existing.Labels, desired.Labels) && maps.Equal(existing.Annotations, desired.Annotations) &&
		slices.EqualFunc(existing.OwnerReferences, desired.OwnerReferences, func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }) &&
		manifest.SameSpec(&existing.Spec, &desired.Spec)
}

// deployWork returns the desired work.
func (p *planner) deployWork(s side, b *bin, hashes string, objects []*object) *workv1.ManifestWork {
	addOn := p.Installation.AddOn
	name := fleet.AddOnDeployWork(addOn.Name, b.index)
	if s.hosting {
		name = fleet.AddOnHostingDeployWork(addOn.Name, addOn.Namespace, b.index)
	}
	w := p.base(s, b.work, name)
	if hashes == "" {
		delete(w.Annotations, fleet.AnnotationConfigSpecHash)
	} else {
		set(&w.Annotations, fleet.AnnotationConfigSpecHash, hashes)
	}
	w.Spec = p.spec(objects)
	return w
}

// base returns a work without its spec, with what other writers have set on an existing one.
func (p *planner) base(s side, existing *work, name string) *workv1.ManifestWork {
	addOn := p.Installation.AddOn
	w := &workv1.ManifestWork{}
	w.Namespace, w.Name = s.namespace, name
	if existing != nil {
		existing.ObjectMeta.DeepCopyInto(&w.ObjectMeta)
	}
	set(&w.Labels, fleet.LabelAddOnName, addOn.Name)
	if w.Namespace != addOn.Namespace {
		set(&w.Labels, fleet.LabelAddOnNamespace, addOn.Namespace)
	} else if !slices.ContainsFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == addOn.UID }) {
		// A reference to a deleted add-on of the same name would have the work garbage-collected.
		w.OwnerReferences = slices.DeleteFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == ownership.Kind })
		w.OwnerReferences = append(w.OwnerReferences, *metav1.NewControllerRef(addOn, addonv1beta1.GroupVersion.WithKind(ownership.Kind)))
	}
	return w
}

func set(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}

// progress counts how far the objects of a side are applied.
type progress struct {
	side            side
	waiting, failed []string
}

// add adds a work. A work that is being written has no report yet.
func (p *progress) add(name string, b *bin, written bool) {
	if b.work == nil || written {
		if len(b.objects) > 0 {
			p.waiting = append(p.waiting, name)
		}
		return
	}
	applied, observed := b.work.observed(fleet.ConditionApplied)
	switch {
	case !observed:
		p.waiting = append(p.waiting, name)
	case applied.Status != metav1.ConditionTrue:
		p.failed = append(p.failed, fmt.Sprintf("%s: %s", name, applied.Message))
	}
}

// condition returns whether the manifests of the add-on are applied. While an available cluster has not reported on a change yet, it
// returns nil, so that each change does not write the condition twice.
func (p *progress) condition(addOn *addonv1beta1.ManagedClusterAddOn) *metav1.Condition {
	switch {
	case len(p.failed) > 0:
		return new(falseCondition(p.side.condition, fleet.ReasonAddOnManifestAppliedFailed,
			fmt.Sprintf("The agent of cluster %s could not apply ManifestWork %s", p.side.namespace, text.FirstFew(p.failed))))
	case len(p.waiting) == 0:
		return new(trueCondition(p.side.condition, fleet.ReasonAddOnManifestApplied, "manifests of addon are applied successfully"))
	case available(p.side.cluster) && meta.IsStatusConditionTrue(addOn.Status.Conditions, p.side.condition):
		return nil
	case available(p.side.cluster):
		return new(falseCondition(p.side.condition, fleet.ReasonAddOnManifestAppliedFailed,
			fmt.Sprintf("The agent of cluster %s has not applied ManifestWork %s yet", p.side.namespace, text.FirstFew(p.waiting))))
	default:
		return new(falseCondition(p.side.condition, fleet.ReasonAddOnManifestAppliedFailed,
			fmt.Sprintf("Cluster %s is not available; once it is, its agent applies ManifestWork %s", p.side.namespace, text.FirstFew(p.waiting))))
	}
}

// available reports whether the agent of a cluster works.
func available(cluster *clusterv1.ManagedCluster) bool {
	return meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionClusterAvailable)
}
