package workload

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capstan-io/capstan/addon/internal/healthprobe"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// spec returns the spec of a work with the objects.
func (p *planner) spec(objects []*object) workv1.ManifestWorkSpec {
	spec := workv1.ManifestWorkSpec{
		DeleteOption:    p.deleteOption(objects),
		ManifestConfigs: p.manifestConfigs(objects),
		Executor:        p.Workload.Executor.DeepCopy(),
	}
	for _, o := range objects {
		spec.Workload.Manifests = append(spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: o.raw}})
	}
	setDefaults(&spec)
	return spec
}

// deleteOption returns the author's delete option, extended by the objects that are annotated to stay.
func (p *planner) deleteOption(objects []*object) *workv1.DeleteOption {
	option := p.Workload.DeleteOption.DeepCopy()
	if option != nil && option.PropagationPolicy == workv1.DeletePropagationPolicyTypeOrphan {
		return option
	}
	var rules []workv1.OrphaningRule
	for _, o := range objects {
		if o.orphan {
			r := p.plurals.resource(o)
			rules = append(rules, workv1.OrphaningRule{Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name})
		}
	}
	if len(rules) == 0 {
		return option
	}
	if option == nil {
		option = &workv1.DeleteOption{}
	}
	if option.SelectivelyOrphan == nil || option.PropagationPolicy != workv1.DeletePropagationPolicyTypeSelectivelyOrphan {
		option.SelectivelyOrphan = &workv1.SelectivelyOrphan{}
	}
	option.PropagationPolicy = workv1.DeletePropagationPolicyTypeSelectivelyOrphan
	for _, rule := range rules {
		if !slices.Contains(option.SelectivelyOrphan.OrphaningRules, rule) {
			option.SelectivelyOrphan.OrphaningRules = append(option.SelectivelyOrphan.OrphaningRules, rule)
		}
	}
	return option
}

// manifestConfigs returns the author's entries that concern the objects. Entries for reported values of single objects come first,
// because the first matching entry counts.
func (p *planner) manifestConfigs(objects []*object) (configs []workv1.ManifestConfigOption) {
	var authored []workv1.ManifestConfigOption
	for i := range p.Workload.ManifestConfigs {
		entry := &p.Workload.ManifestConfigs[i]
		if slices.ContainsFunc(objects, func(o *object) bool { return concerns(entry.ResourceIdentifier, o) }) {
			authored = append(authored, *entry.DeepCopy())
		}
	}
	for _, o := range objects {
		resource := p.plurals.resource(o)
		theirs := manifest.ConfigFor(authored, resource).FeedbackRules
		rules, ok := hookFeedback(o, theirs)
		if !ok {
			rules, ok = healthprobe.Feedback(p.Options.Health, o.WithVersion(o.version), resource, theirs)
		}
		if ok {
			configs = append(configs, workv1.ManifestConfigOption{ResourceIdentifier: resource, FeedbackRules: rules})
		}
	}
	return append(configs, authored...)
}

// setDefaults sets the defaults of the API, so that the spec equals what the API server stores.
func setDefaults(spec *workv1.ManifestWorkSpec) {
	if spec.DeleteOption != nil {
		spec.DeleteOption.PropagationPolicy = cmp.Or(spec.DeleteOption.PropagationPolicy, workv1.DeletePropagationPolicyTypeForeground)
	}
	for i := range spec.ManifestConfigs {
		c := &spec.ManifestConfigs[i]
		c.FeedbackScrapeType = cmp.Or(c.FeedbackScrapeType, workv1.FeedbackPollType)
		if c.UpdateStrategy == nil {
			continue
		}
		c.UpdateStrategy.Type = cmp.Or(c.UpdateStrategy.Type, workv1.UpdateStrategyTypeUpdate)
		if ssa := c.UpdateStrategy.ServerSideApply; ssa != nil {
			ssa.FieldManager = cmp.Or(ssa.FieldManager, "work-agent")
			for j := range ssa.IgnoreFields {
				ssa.IgnoreFields[j].Condition = cmp.Or(ssa.IgnoreFields[j].Condition, workv1.IgnoreFieldsConditionOnSpokePresent)
			}
		}
	}
}
