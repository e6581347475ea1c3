package addon

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// Agent is an add-on as its author writes it. Its methods are called from several goroutines.
type Agent interface {
	// Options say how the hub treats the add-on. They are asked for once, when the add-on is given to a manager.
	Options() Options

	// Manifests returns what the add-on consists of on a cluster. It is called whenever something it may depend on has
	// changed: the add-on, its cluster or its configurations, or something else of which the manager is told with Trigger. It has
	// to return the same for the same input, in any order. If it fails, what is on the cluster stays as it is, the error is shown in the
	// condition ManifestApplied, and it is called again after a while. To take everything away from the cluster, it returns an
	// empty Workload; nil without an error is a failure.
	Manifests(ctx context.Context, installation Installation) (*Workload, error)
}

// ErrNotYet is for Manifests and InstallNamespace that cannot tell yet, without anything being wrong: a configuration has
// not reached the cluster, say. What is on the cluster stays as it is, and they are called again when the add-on, its
// cluster or its configurations change, and every ten minutes.
var ErrNotYet = errors.New("it is not known yet what the cluster is to have")

// Workload is what an add-on consists of on one cluster. Where the objects go is decided by annotations on them:
// addon.open-cluster-management.io/hosted-manifest-location for add-ons in hosted mode,
// addon.open-cluster-management.io/addon-pre-delete on a Job or Pod that is to run before the add-on is removed,
// addon.open-cluster-management.io/deletion-orphan on what is to stay when the add-on is removed.
type Workload struct {
	// Objects are brought to the cluster, each with its apiVersion and kind; those of the types in client-go's scheme and of the API of
	// Open Cluster Management may leave them out.
	Objects []client.Object
	// ManifestConfigs say of single objects how they are applied, and what of their status is reported.
	ManifestConfigs []workv1.ManifestConfigOption
	// DeleteOption is what happens to the objects when the add-on goes; nil deletes them, except those that are marked
	// to stay.
	DeleteOption *workv1.DeleteOption
	// Executor is as whom the objects are applied on the cluster; nil is the work agent itself.
	Executor *workv1.ManifestWorkExecutor
}

// Options say how the hub treats an add-on.
type Options struct {
	// Name of the add-on: that of its ClusterManagementAddOn and of its ManagedClusterAddOns, of no more than 63 characters. It is
	// required.
	Name string
	// Registration is how the agent gets access to the hub; nil gives it none.
	Registration *Registration
	// Health is how it is found out whether the agent works; the zero value looks at its lease.
	Health Health
	// InstallNamespace chooses the namespace of the agent on the managed cluster; nil, or an empty result, leaves it to the annotation
	// addon.open-cluster-management.io/v1alpha1-install-namespace, and then to open-cluster-management-agent-addon.
	InstallNamespace func(ctx context.Context, installation Installation) (string, error)
	// HostingCluster names the cluster of the hub on which the agent runs in hosted mode, instead of on the one that it manages;
	// empty is the default mode. It follows from the Cluster and the AddOn of the installation alone. nil is for add-ons
	// that know no hosted mode; [AnnotatedHostingCluster] is the usual one.
	//
	// The agent of the cluster and the hub go by the annotation that the usual one reads: whoever finds the name elsewhere sees to it that
	// the ManagedClusterAddOn has it in the annotation, too. The hub checks whether a user may name a cluster there, and not what is
	// found elsewhere.
	HostingCluster func(installation Installation) string
	// Configs are the types of configurations that the add-on reads. They are listed in
	// status.supportedConfigs, and watched: what Manifests returns may depend on them. Each is watched in the version given here, which has to
	// be that of the Go type with which it is read: another version is read from another cache, whose changes call nothing.
	//
	// An add-on with Configs is not deployed before it has been given the configurations that it is to have on the cluster: all of its
	// status.configReferences to these types have a specHash, or the condition Configured says that there are none. It would be
	// deployed with other settings otherwise, and perhaps in another namespace, than the ones whose turn comes in the rollout. Add-ons that
	// nobody configures, because they have no ClusterManagementAddOn or are [SelfManaged], wait only for what is announced there.
	Configs []schema.GroupVersionResource
	// RedeployOn tells whether a change of the cluster matters to Manifests; nil means that its labels, annotations, claims and
	// version do. That of the hosting cluster's version always does.
	RedeployOn func(before, after *clusterv1.ManagedCluster) bool
}
