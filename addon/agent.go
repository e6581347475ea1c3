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
	// Options returns how the hub treats the add-on. A manager calls it once, when the add-on is added.
	Options() Options

	// Manifests returns the objects of the add-on for a cluster. It is called when something changes that they may depend on: the add-on,
	// its cluster, its configurations, or anything else that is passed to Trigger. The same input has to give the
	// same result; the order of objects does not matter. When Manifests fails, the cluster keeps what it has, the condition
	// ManifestApplied shows the error, and the manager calls it again after a while. To remove everything from the cluster, return an
	// empty Workload: a rollout then counts the cluster as done. nil without an error is a failure.
	Manifests(ctx context.Context, installation Installation) (*Workload, error)
}

// ErrNotYet is returned by Manifests and InstallNamespace when they cannot answer yet although nothing is wrong: for example, a
// configuration has not reached the cluster. The cluster keeps what it has, and they are called again when the add-on, its cluster or
// its configurations change, and every ten minutes.
var ErrNotYet = errors.New("it is not known yet what the cluster is to have")

// Workload is what an add-on consists of on one cluster. Annotations on the objects decide where they go:
// addon.open-cluster-management.io/hosted-manifest-location for add-ons in hosted mode,
// addon.open-cluster-management.io/addon-pre-delete on a Job or Pod that runs before the add-on is removed,
// addon.open-cluster-management.io/deletion-orphan on an object that stays when the add-on is removed.
type Workload struct {
	// Objects are applied on the cluster. Each has its apiVersion and kind; objects of the Go types in client-go's scheme and of the API
	// of Open Cluster Management may omit them.
	Objects []client.Object
	// ManifestConfigs set, for single objects, how they are applied and which part of their status is reported.
	ManifestConfigs []workv1.ManifestConfigOption
	// DeleteOption sets what happens to the objects when the add-on is removed. nil deletes them, except those annotated to stay. Hooks are
	// always deleted.
	DeleteOption *workv1.DeleteOption
	// Executor is the identity that applies the objects on the cluster. nil is the work agent itself.
	Executor *workv1.ManifestWorkExecutor
}

// Options say how the hub treats an add-on.
type Options struct {
	// Name of the add-on: the name of its ClusterManagementAddOn and of its ManagedClusterAddOns, with at most 63 characters. It is
	// required.
	Name string
	// Registration sets how the agent gets access to the hub. nil gives it none.
	Registration *Registration
	// Health sets how the hub finds out whether the agent works. The zero value uses the agent's lease.
	Health Health
	// InstallNamespace returns the namespace of the agent on the managed cluster. When it is nil or returns an empty name, the namespace
	// comes from the annotation addon.open-cluster-management.io/v1alpha1-install-namespace, or is open-cluster-management-agent-addon.
	InstallNamespace func(ctx context.Context, installation Installation) (string, error)
	// HostingCluster returns the name of the cluster on which the agent runs in hosted mode, instead of on the cluster that it manages.
	// An empty name means default mode. The result may depend only on the Cluster and the AddOn of the installation. nil is for add-ons
	// without hosted mode; [AnnotatedHostingCluster] is the usual function.
	//
	// The agent of the cluster and the hub read the annotation that AnnotatedHostingCluster reads. A function that takes the name from
	// elsewhere has to make sure that the ManagedClusterAddOn also has it in that annotation. The hub checks whether a user may name a
	// cluster in the annotation; it checks no other source.
	HostingCluster func(installation Installation) string
	// Configs are the types of configurations that the add-on reads. They are listed in status.supportedConfigs, and watched, so that
	// Manifests is called when a configuration changes. The version has to be that of the Go type with which the add-on reads the
	// configuration: each version has its own cache, and only changes in the caches of this version and of the one that the hub prefers
	// are noticed. A manager knows the versions that the hub serves when the manager starts.
	//
	// An add-on with Configs is deployed only once its configurations are known: all entries of its status.configReferences with these
	// types have a specHash, or the condition Configured says that there are none. Otherwise it would be deployed with other settings,
	// and perhaps in another namespace, than its rollout intends. Add-ons that the hub does not configure, because they have no
	// ClusterManagementAddOn or are [SelfManaged], wait only for the entries in status.configReferences.
	Configs []schema.GroupVersionResource
	// RedeployOn reports whether a change of the managed cluster may change what Manifests returns. nil means that changes of labels,
	// annotations, claims and version do. A change of the hosting cluster's version always does.
	RedeployOn func(before, after *clusterv1.ManagedCluster) bool
}
