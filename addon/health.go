package addon

import (
	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// HealthMode is a way to find out whether the agent of an add-on works (AF-07).
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
	// Probes are what is looked at in mode HealthProbes.
	Probes []Probe
}

// Probe looks at the status of objects of an add-on.
type Probe struct {
	// Resource is the object, or objects: name and namespace may hold wildcards.
	Resource workv1.ResourceIdentifier
	// Feedback is what of its status is reported to the hub.
	Feedback []workv1.FeedbackRule
	// Healthy returns nil if what was reported of one object is as it should be, and otherwise an error that says what is
	// wrong, for the condition Available.
	Healthy func(object workv1.ManifestResourceMeta, reported workv1.StatusFeedbackResult) error
}
