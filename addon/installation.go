package addon

import (
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Installation is an add-on on one cluster. Its objects are shared and must not be changed.
type Installation struct {
	// Cluster is the managed cluster.
	Cluster *clusterv1.ManagedCluster
	// AddOn is what is installed on it.
	AddOn *addonv1beta1.ManagedClusterAddOn
	// HostingCluster is the name of the cluster on which the agent runs in hosted mode, as [Options.HostingCluster] has chosen it; empty
	// in default mode.
	HostingCluster string
}

// Mode is where the agent of an add-on runs.
type Mode string

const (
	// Default runs the agent on the cluster that it is for.
	Default Mode = "Default"
	// Hosted runs it on another cluster of the hub, the hosting cluster.
	Hosted Mode = "Hosted"
)

// Mode is where the agent runs.
func (i Installation) Mode() Mode {
	if i.HostingCluster == "" {
		return Default
	}
	return Hosted
}

// AnnotatedHostingCluster is an [Options.HostingCluster] that takes the name from the annotation
// addon.open-cluster-management.io/hosting-cluster-name of the ManagedClusterAddOn. The hub copies it there from the ManagedCluster.
func AnnotatedHostingCluster(installation Installation) string {
	return installation.AddOn.Annotations[fleet.AnnotationHostingClusterName]
}

// Namespace of the agent on the cluster on which it runs. [Options.InstallNamespace] and Registration.Configs are asked before it
// is chosen for the first time: there it is that of the annotation, or the usual one.
func (i Installation) Namespace() string {
	if i.AddOn.Status.Namespace != "" {
		return i.AddOn.Status.Namespace
	}
	if namespace := i.AddOn.Annotations[fleet.AnnotationInstallNamespace]; namespace != "" {
		return namespace
	}
	return fleet.NamespaceAgentAddOn
}

// HubKubeconfigSecret is the name of the Secret in Namespace with which the agent reaches the hub: its key kubeconfig, and
// what that refers to.
func (i Installation) HubKubeconfigSecret() string {
	return fleet.AddOnHubKubeconfigSecret(i.AddOn.Name)
}

// ManagedKubeconfigSecret is the name of the Secret in Namespace with which an agent in hosted mode is to reach its
// cluster. Whoever sets up the hosting cluster puts it there.
func (i Installation) ManagedKubeconfigSecret() string {
	return i.AddOn.Name + "-managed-kubeconfig"
}

// ClientCertSecret is the name of the Secret in Namespace with the certificate of a signer other than that of the hub's API
// server: its keys tls.crt and tls.key.
func (i Installation) ClientCertSecret(signer string) string {
	return fleet.AddOnClientCertSecret(i.AddOn.Name, signer)
}
