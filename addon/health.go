package addon

import (
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/ready"
)

// HealthMode is how the health of the agent of an add-on is determined. The result is the condition Available.
type HealthMode string

const (
	// HealthLease uses the lease that the agent renews (package addon/lease). It is the default.
	HealthLease HealthMode = ""
	// HealthNone leaves the condition Available to the add-on, which sets it.
	HealthNone HealthMode = "None"
	// HealthManifests counts the add-on as available once its manifests are applied.
	HealthManifests HealthMode = "Manifests"
	// HealthDeployments requires a ready replica of each Deployment of the add-on. Deployments that are scaled to zero do not count.
	HealthDeployments HealthMode = "Deployments"
	// HealthWorkloads requires the same, and that all pods of each DaemonSet are ready.
	HealthWorkloads HealthMode = "Workloads"
	// HealthProbes uses Health.Probes.
	HealthProbes HealthMode = "Probes"
)

// Health sets how the hub finds out whether the agent of an add-on works.
type Health struct {
	// Mode is how the health is determined.
	Mode HealthMode
	// Probes are used in mode HealthProbes, which requires at least one. While one of them finds no object, Available is Unknown, with
	// the reason NoProbeResult.
	Probes []Probe
}

// DeploymentProbe returns a Probe that requires a ready replica of one Deployment, unless it is scaled to zero. It is for add-ons with
// several Deployments of which only some matter.
func DeploymentProbe(namespace, name string) Probe {
	return Probe{
		Resource: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: namespace, Name: name},
		Feedback: ready.DeploymentFeedback(),
		Healthy: func(_ workv1.ManifestResourceMeta, reported workv1.StatusFeedbackResult) error {
			return ready.Deployment(reported)
		},
	}
}

// Probe checks the status of objects of an add-on.
type Probe struct {
	// Resource selects the object, or objects: name and namespace may have wildcards.
	Resource workv1.ResourceIdentifier
	// Feedback selects the part of the status that is reported to the hub.
	Feedback []workv1.FeedbackRule
	// Healthy returns nil if the reported status of one object is as it should be, and otherwise an error that says what is wrong, for
	// the condition Available. It is required, and must not change its arguments.
	Healthy func(object workv1.ManifestResourceMeta, reported workv1.StatusFeedbackResult) error
}
