package addon

import (
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/ready"
)

// HealthMode is a way to find out whether the agent of an add-on works.
type HealthMode string

const (
	// HealthLease looks at the lease that the agent renews (package addon/lease). It is the default.
	HealthLease HealthMode = ""
	// HealthNone finds out nothing: the add-on sets the condition Available by itself.
	HealthNone HealthMode = "None"
	// HealthManifests is healthy once the manifests are applied.
	HealthManifests HealthMode = "Manifests"
	// HealthDeployments wants every Deployment of the add-on to have a ready replica, or to be scaled to none.
	HealthDeployments HealthMode = "Deployments"
	// HealthWorkloads wants that, and all pods of every DaemonSet to be ready.
	HealthWorkloads HealthMode = "Workloads"
	// HealthProbes looks at what Health.Probes ask for.
	HealthProbes HealthMode = "Probes"
)

// Health is how it is found out whether the agent of an add-on works. Its condition Available tells.
type Health struct {
	// Mode is the way.
	Mode HealthMode
	// Probes are what is looked at in mode HealthProbes, which needs some. As long as one of them finds no object, it is not known
	// whether the add-on works: Available is Unknown, with the reason NoProbeResult.
	Probes []Probe
}

// DeploymentProbe wants one Deployment to have a ready replica, or to be scaled to none: for add-ons of several that stand or
// fall with some of them.
func DeploymentProbe(namespace, name string) Probe {
	return Probe{
		Resource: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: namespace, Name: name},
		Feedback: ready.DeploymentFeedback(),
		Healthy: func(_ workv1.ManifestResourceMeta, reported workv1.StatusFeedbackResult) error {
			return ready.Deployment(reported)
		},
	}
}

// Probe looks at the status of objects of an add-on.
type Probe struct {
	// Resource is the object, or objects: name and namespace may hold wildcards.
	Resource workv1.ResourceIdentifier
	// Feedback is what of its status is reported to the hub.
	Feedback []workv1.FeedbackRule
	// Healthy returns nil if what was reported of one object is as it should be, and otherwise an error that says what is
	// wrong, for the condition Available. It is required. What it gets is shared and must not be changed.
	Healthy func(object workv1.ManifestResourceMeta, reported workv1.StatusFeedbackResult) error
}
