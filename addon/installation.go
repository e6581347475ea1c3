package addon

import (
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Installation is an add-on on one cluster. Its objects are shared and must not be changed.
type Installation struct {
	// Cluster is the managed cluster that the add-on is for.
	Cluster *clusterv1.ManagedCluster
	// AddOn is the ManagedClusterAddOn of the add-on in the namespace of the cluster.
	AddOn *addonv1beta1.ManagedClusterAddOn
	// HostingCluster is the name of the cluster on which the agent runs in hosted mode, as [Options.HostingCluster] returns it. It is
	// empty in default mode.
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

// Mode returns where the agent runs.
func (i Installation) Mode() Mode {
	if i.HostingCluster == "" {
		return Default
	}
	return Hosted
}

// AnnotatedHostingCluster is an [Options.HostingCluster] that returns the value of the annotation
// addon.open-cluster-management.io/hosting-cluster-name of the ManagedClusterAddOn. The hub copies that annotation from the
// ManagedCluster.
func AnnotatedHostingCluster(installation Installation) string {
	return installation.AddOn.Annotations[fleet.AnnotationHostingClusterName]
}

// Namespace returns the namespace of the agent on the cluster on which it runs. Until [Options.InstallNamespace] has returned a
// namespace for the first time, it is that of the annotation, or the default; [Options.InstallNamespace] and Registration.Configs
// themselves see this.
func (i Installation) Namespace() string {
	if i.AddOn.Status.Namespace != "" {
		return i.AddOn.Status.Namespace
	}
	if namespace := i.AddOn.Annotations[fleet.AnnotationInstallNamespace]; namespace != "" {
		return namespace
	}
	return fleet.NamespaceAgentAddOn
}

// HubKubeconfigSecret returns the name of the Secret in Namespace with the agent's access to the hub. Its key kubeconfig has a
// kubeconfig, which refers to the other keys.
func (i Installation) HubKubeconfigSecret() string {
	return fleet.AddOnHubKubeconfigSecret(i.AddOn.Name)
}

// ManagedKubeconfigSecret returns the name of the Secret in Namespace with which an agent in hosted mode reaches its managed cluster.
// The administrator of the hosting cluster creates it.
func (i Installation) ManagedKubeconfigSecret() string {
	return i.AddOn.Name + "-managed-kubeconfig"
}

// ClientCertSecret returns the name of the Secret in Namespace with the certificate of a signer other than that of the hub's API
// server. Its keys are tls.crt and tls.key.
func (i Installation) ClientCertSecret(signer string) string {
	return fleet.AddOnClientCertSecret(i.AddOn.Name, signer)
}
