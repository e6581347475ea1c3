// Package inprocess runs the rules of package admission inside the API server that `capstan-hub server` embeds: as
// admission plugins, which use the server's own authorizer, without webhooks, certificates or a SubjectAccessReview per
// question.
package inprocess

import (
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/clock"

	rules "github.com/capstan-io/capstan/internal/admission"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Names of the plugins, as `--enable-admission-plugins` and `--disable-admission-plugins` take them.
const (
	ManagedClusterMutating             = "ManagedClusterMutating"
	HubTypeValidating                  = "HubTypeValidating"
	ManagedClusterValidating           = "ManagedClusterValidating"
	ManagedClusterSetValidating        = "ManagedClusterSetValidating"
	ManagedClusterSetBindingValidating = "ManagedClusterSetBindingValidating"
	PlacementValidating                = "PlacementValidating"
	ManifestWorkValidating             = "ManifestWorkValidating"
	ManifestWorkReplicaSetValidating   = "ManifestWorkReplicaSetValidating"
	ClusterManagementAddOnValidating   = "ClusterManagementAddOnValidating"
	ManagedClusterAddOnValidating      = "ManagedClusterAddOnValidating"
	AddOnTemplateValidating            = "AddOnTemplateValidating"
	AgentRequestValidating             = "AgentRequestValidating"
	AgentLeaseValidating               = "AgentLeaseValidating"
	AgentSecretValidating              = "AgentSecretValidating"
	AgentEventLimiting                 = "AgentEventLimiting"
	AgentMetadataLimiting              = "AgentMetadataLimiting"
)

// Options configure the plugins. Start from DefaultOptions.
type Options struct {
	// HubNamespace has the service accounts of the hub.
	HubNamespace string
	// Clock is the source of the time of taints.
	Clock clock.PassiveClock
	// Taint and Finalizer are for new clusters: the taint of one that no agent has reported about, and a finalizer; none if it is empty. The
	// controllers of a hub set both next, and nobody else removes them: they are for a hub that runs these.
	Taint     bool
	Finalizer string
	// DefaultClusterSet is the feature gate of this name.
	DefaultClusterSet bool
	// BindCredentials makes certificates valid only for the ManagedCluster that they were issued for, which a standalone hub enforces.
	BindCredentials bool
	// ManifestWork configures the checks of ManifestWorks: the size limit, which is that of templates of
	// ManifestWorkReplicaSets and of AddOnTemplates, too, and the gate NilExecutorValidating.
	ManifestWork rules.ManifestWorkOptions
	// JoinLimit is how many pending clusters, and how many undecided certificate requests, one bootstrap credential may have at a time.
	JoinLimit int
}

// DefaultOptions returns options with the namespace fleet.NamespaceHub, the system clock, the gates at their defaults (DefaultClusterSet
// on, NilExecutorValidating off) and the size limit rules.DefaultManifestLimit.
func DefaultOptions() Options {
	return Options{
		HubNamespace:      fleet.NamespaceHub,
		Clock:             clock.RealClock{},
		DefaultClusterSet: true,
		ManifestWork:      rules.ManifestWorkOptions{Limit: rules.DefaultManifestLimit},
		JoinLimit:         rules.DefaultJoinLimit,
	}
}

// Plugin is an admission plugin and the name to register it by.
type Plugin struct {
	Name   string
	Plugin admission.Interface
}

// Plugins returns new plugins for one API server. All have to be enabled, and need its authorizer and a client from the server's plugin
// initializers.
func Plugins(opts Options) []Plugin {
	return []Plugin{
		{ManagedClusterMutating, newClusterMutator(opts)},
		{HubTypeValidating, newTypeValidator()},
		{ManagedClusterValidating, newClusterValidator(opts)},
		{ManagedClusterSetValidating, newSetValidator()},
		{ManagedClusterSetBindingValidating, newBindingValidator(opts)},
		{PlacementValidating, newPlacementValidator()},
		{ManifestWorkValidating, newWorkValidator(opts)},
		{ManifestWorkReplicaSetValidating, newReplicaSetValidator(opts)},
		{ClusterManagementAddOnValidating, newManagementAddOnValidator()},
		{ManagedClusterAddOnValidating, newAddOnValidator(opts)},
		{AddOnTemplateValidating, newTemplateValidator(opts)},
		{AgentRequestValidating, newRequestValidator(opts)},
		{AgentLeaseValidating, newLeaseValidator(opts)},
		{AgentSecretValidating, newSecretValidator(opts)},
		{AgentEventLimiting, newEventLimiter(opts)},
		{AgentMetadataLimiting, newMetadataLimiter(opts)},
	}
}
