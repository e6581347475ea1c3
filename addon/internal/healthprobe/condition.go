package healthprobe

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/ready"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Input is what determines the health of an add-on on one cluster.
type Input struct {
	Options      addon.Options
	Installation addon.Installation
	// Works are the ManifestWorks of the add-on, with the status that the agents report. They are not changed. Works of pre-delete hooks
	// do not count.
	Works []workv1.ManifestWork
}

// Condition returns the condition Available of the add-on, without its times. It is nil if this package does not set it: because the
// add-on or its lease does, or because the hub has set it to Unknown for a cluster without heartbeats. mode is the value for
// status.healthCheck.mode.
func Condition(in Input) (condition *metav1.Condition, mode addonv1beta1.HealthCheckMode) {
	health := in.Options.Health
	switch {
	case health.Mode == addon.HealthLease:
		return nil, addonv1beta1.HealthCheckModeLease
	case health.Mode == addon.HealthNone || isUnknown(in.Installation):
		return nil, addonv1beta1.HealthCheckModeCustomized
	}
	in.Works = in.deployed()
	found := in.ofWorks()
	if found.Status == metav1.ConditionTrue && health.Mode != addon.HealthManifests {
		found = probe(in)
	}
	found.Type = fleet.ConditionAvailable
	return &found, addonv1beta1.HealthCheckModeCustomized
}

// deployed returns the works that deploy the add-on to its clusters and are not being deleted. Works on other clusters may carry the
// labels of the add-on, too; they do not count.
func (in Input) deployed() (works []workv1.ManifestWork) {
	addOn := in.Installation.AddOn
	clusters := []string{addOn.Namespace, in.Installation.HostingCluster}
	hooks := []string{fleet.AddOnPreDeleteWork(addOn.Name), fleet.AddOnHostingPreDeleteWork(addOn.Name, addOn.Namespace)}
	for _, work := range in.Works {
		if work.DeletionTimestamp.IsZero() && slices.Contains(clusters, work.Namespace) && !slices.Contains(hooks, work.Name) {
			works = append(works, work)
		}
	}
	return works
}

// isUnknown reports whether the cluster has sent no heartbeat for too long.
func isUnknown(installation addon.Installation) bool {
	return installation.Cluster != nil && meta.IsStatusConditionPresentAndEqual(installation.Cluster.Status.Conditions,
		fleet.ConditionClusterAvailable, metav1.ConditionUnknown)
}

// ofWorks returns whether all objects are on the clusters. Until the agent has seen the present version of a work, the report on the
// version before counts: a change of the add-on does not make it unavailable.
func (in Input) ofWorks() metav1.Condition {
	if len(in.Works) == 0 {
		return unknown(fleet.ReasonWorkNotFound, "There is no ManifestWork of the add-on: the condition %s tells why, if there should be one",
			fleet.ConditionManifestApplied)
	}
	found := metav1.Condition{Status: metav1.ConditionTrue, Reason: fleet.ReasonWorkApplied, Message: "Addon manifestWork is applied"}
	if in.lacksHost() {
		found = unknown(fleet.ReasonWorkNotFound, "There is no ManifestWork of the add-on on its hosting cluster %s: the condition %s tells why",
			in.Installation.HostingCluster, in.tellsWhy())
	}
	for i := range in.Works {
		if one := ofWork(&in.Works[i]); severity(one) > severity(found) {
			found = one
		}
	}
	return found
}

// lacksHost reports whether the add-on is hosted and has nothing on its hosting cluster, though it should: that cluster cannot have it, or
// the hub refuses the work. Of an add-on of which nothing is to go there, the condition is True.
func (in Input) lacksHost() bool {
	if in.Installation.Mode() != addon.Hosted {
		return false
	}
	said := in.saidOfHost()
	return said == nil || said.Status != metav1.ConditionTrue && !slices.ContainsFunc(in.Works, func(work workv1.ManifestWork) bool {
		return work.Namespace == in.Installation.HostingCluster
	})
}

func (in Input) saidOfHost() *metav1.Condition {
	return meta.FindStatusCondition(in.Installation.AddOn.Status.Conditions, fleet.ConditionHostingManifestApplied)
}

// tellsWhy is the condition with the reason why nothing is on the hosting cluster.
func (in Input) tellsWhy() string {
	if said := in.saidOfHost(); said != nil && said.Status == metav1.ConditionFalse {
		return fleet.ConditionHostingManifestApplied
	}
	return fleet.ConditionHostingClusterValidity
}

func ofWork(work *workv1.ManifestWork) metav1.Condition {
	name := work.Namespace + "/" + work.Name
	if c := meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionApplied); c != nil && c.Status == metav1.ConditionFalse {
		return unavailable(fleet.ReasonWorkApplyFailed, "ManifestWork %s is not applied: %s", name, c.Message)
	}
	c := meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionAvailable)
	switch {
	case c == nil:
		return unknown(fleet.ReasonWorkNotApplied, "The agent of cluster %s has not reported on ManifestWork %s yet", work.Namespace, name)
	case c.Status == metav1.ConditionTrue:
		return metav1.Condition{Status: metav1.ConditionTrue}
	case c.Status == metav1.ConditionFalse:
		return unavailable(fleet.ReasonWorkNotApplied, "ManifestWork %s is not available: %s", name, c.Message)
	default:
		return unknown(fleet.ReasonWorkNotApplied, "It is unknown whether ManifestWork %s is available: %s", name, c.Message)
	}
}

// severity orders conditions: a known problem ranks above an unknown state.
func severity(condition metav1.Condition) int {
	return slices.Index([]metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionUnknown, metav1.ConditionFalse}, condition.Status)
}

// finding is the health of one object.
type finding struct {
	object   string
	reported bool
	err      error
}

// probe checks every object on which the health depends.
func probe(in Input) metav1.Condition {
	if in.Options.Health.Mode == addon.HealthProbes && len(in.Options.Health.Probes) == 0 {
		return unknown(fleet.ReasonNoProbeResult, "Probe results are not returned: the add-on has no Probes in the Health of its options")
	}
	var silent, sick []string
	for _, f := range findings(in) {
		switch {
		case !f.reported:
			silent = append(silent, f.object)
		case f.err != nil:
			sick = append(sick, fmt.Sprintf("%s: %s", f.object, f.err))
		}
	}
	idle := in.idle()
	switch {
	case len(sick) > 0:
		return unavailable(fleet.ReasonProbeUnavailable, "%s", text.FirstFew(sick))
	case len(idle) > 0:
		return unknown(fleet.ReasonNoProbeResult, "Probe results are not returned: the add-on has no object for the probe of %s",
			text.FirstFew(idle))
	case len(silent) > 0:
		return unknown(fleet.ReasonNoProbeResult, "Probe results are not returned: nothing is reported yet of %s", text.FirstFew(silent))
	default:
		return metav1.Condition{
			Status: metav1.ConditionTrue, Reason: fleet.ReasonProbeAvailable, Message: in.Options.Name + " add-on is available.",
		}
	}
}

// idle returns the probes that match no object on the clusters, for example because of a typing error.
func (in Input) idle() (probes []string) {
	if in.Options.Health.Mode != addon.HealthProbes {
		return nil
	}
	for i := range in.Options.Health.Probes {
		resource := in.Options.Health.Probes[i].Resource
		if !slices.ContainsFunc(in.Works, func(work workv1.ManifestWork) bool {
			return slices.ContainsFunc(work.Status.ResourceStatus.Manifests, func(reported workv1.ManifestCondition) bool {
				return manifest.Matches(resource, identify(reported.ResourceMeta))
			})
		}) {
			kind := schema.GroupResource{Group: resource.Group, Resource: resource.Resource}
			probes = append(probes, kind.String()+" "+named(resource.Namespace, resource.Name))
		}
	}
	return probes
}

func identify(object workv1.ManifestResourceMeta) workv1.ResourceIdentifier {
	return workv1.ResourceIdentifier{Group: object.Group, Resource: object.Resource, Namespace: object.Namespace, Name: object.Name}
}

// findings are sorted by object, so that messages do not depend on the order of lists.
func findings(in Input) (all []finding) {
	for i := range in.Works {
		work := &in.Works[i]
		for j := range work.Status.ResourceStatus.Manifests {
			reported := &work.Status.ResourceStatus.Manifests[j]
			if f, ok := in.evaluate(reported); ok {
				f.object = describe(work, reported.ResourceMeta)
				all = append(all, f)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b finding) int { return cmp.Compare(a.object, b.object) })
	return all
}

// evaluate returns the health of an object; ok is false if it does not count.
func (in Input) evaluate(reported *workv1.ManifestCondition) (f finding, ok bool) {
	kind := schema.GroupKind{Group: reported.ResourceMeta.Group, Kind: reported.ResourceMeta.Kind}
	f.reported = len(reported.StatusFeedbacks.Values) > 0
	switch {
	case in.Options.Health.Mode == addon.HealthProbes:
		return in.probe(reported)
	case !checks(in.Options.Health.Mode, kind):
		return f, false
	case kind == deployment:
		f.err = ready.Deployment(reported.StatusFeedbacks)
	default:
		f.err = ready.DaemonSet(reported.StatusFeedbacks)
	}
	return f, true
}

// probe runs the author's probes for an object, if the status that they need is reported. The first failure counts.
func (in Input) probe(reported *workv1.ManifestCondition) (f finding, ok bool) {
	object := reported.ResourceMeta
	f.reported = true
	for i := range in.Options.Health.Probes {
		p := &in.Options.Health.Probes[i]
		if !manifest.Matches(p.Resource, identify(object)) {
			continue
		}
		ok = true
		switch {
		case len(p.Feedback) > 0 && len(reported.StatusFeedbacks.Values) == 0:
			f.reported = false
		case p.Healthy != nil && f.err == nil:
			f.err = p.Healthy(object, reported.StatusFeedbacks)
		}
	}
	return f, ok
}

func describe(work *workv1.ManifestWork, object workv1.ManifestResourceMeta) string {
	return fmt.Sprintf("%s %s on cluster %s", object.Kind, named(object.Namespace, object.Name), work.Namespace)
}

func named(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

func unknown(reason, format string, args ...any) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionUnknown, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func unavailable(reason, format string, args ...any) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}
