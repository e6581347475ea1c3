package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddOnDeploymentConfig says how the agents of add-ons are deployed: where, from which registry, behind which proxy,
// with which resources. Add-ons refer to it in their configs.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced
type AddOnDeploymentConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the configuration.
	// +required
	Spec AddOnDeploymentConfigSpec `json:"spec"`
}

// AddOnDeploymentConfigSpec says how the agents of add-ons are deployed.
type AddOnDeploymentConfigSpec struct {
	// customizedVariables are variables for the manifests of the add-on. Add-ons of an AddOnTemplate use them as
	// {{NAME}}.
	// +optional
	// +listType=map
	// +listMapKey=name
	CustomizedVariables []CustomizedVariable `json:"customizedVariables,omitempty"`

	// nodePlacement says on which nodes the pods of the agent run.
	// +optional
	NodePlacement *NodePlacement `json:"nodePlacement,omitempty"`

	// registries say where the images of the agent are pulled from. They take precedence over the annotation
	// open-cluster-management.io/image-registries of the ManagedCluster.
	// +optional
	Registries []ImageMirror `json:"registries,omitempty"`

	// proxyConfig is the proxy through which the agent reaches the hub.
	// +optional
	ProxyConfig ProxyConfig `json:"proxyConfig,omitempty,omitzero"`

	// agentInstallNamespace is the namespace for the agent on the managed cluster. An empty string leaves it to the
	// add-on.
	// +optional
	// +kubebuilder:default=open-cluster-management-agent-addon
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	AgentInstallNamespace string `json:"agentInstallNamespace"`

	// resourceRequirements set the resources of containers of the agent. Where several match a container, the last
	// one wins.
	// +optional
	// +listType=map
	// +listMapKey=containerID
	ResourceRequirements []ContainerResourceRequirements `json:"resourceRequirements,omitempty"`
}

// CustomizedVariable is a name and a value.
type CustomizedVariable struct {
	// name of the variable: letters, digits and underscores, not beginning with a digit.
	// +required
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[a-zA-Z_][_a-zA-Z0-9]*$`
	Name string `json:"name"`

	// value of the variable.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
}

// NodePlacement says on which nodes pods run.
type NodePlacement struct {
	// nodeSelector are the labels that the nodes must have.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations are the taints of nodes that do not matter.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// ImageMirror replaces the registry of images.
type ImageMirror struct {
	// mirror is the registry to pull from, with or without a path, such as mirror.example.com/ocm.
	// +required
	Mirror string `json:"mirror"`

	// source is the registry, or the beginning of the image name, to replace. Empty means any: only the last part
	// of the image name is kept.
	// +optional
	Source string `json:"source,omitempty"`
}

// ProxyConfig is a proxy.
type ProxyConfig struct {
	// httpProxy is the proxy for http URLs.
	// +optional
	HTTPProxy string `json:"httpProxy,omitempty"`

	// httpsProxy is the proxy for https URLs.
	// +optional
	HTTPSProxy string `json:"httpsProxy,omitempty"`

	// caBundle is the PEM-encoded certificates to verify the proxy with.
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`

	// noProxy are the host names, addresses and networks, separated by commas, that are reached without proxy.
	// +optional
	NoProxy string `json:"noProxy,omitempty"`
}

// ContainerResourceRequirements are the resources of containers.
type ContainerResourceRequirements struct {
	// containerID names the containers as RESOURCE:NAME:CONTAINER, such as deployments:hello-agent:hello. Each of
	// the three may be *.
	// +required
	// +kubebuilder:validation:Pattern=`^(deployments|daemonsets|statefulsets|replicasets|jobs|cronjobs|pods|\*):.+:.+$`
	ContainerID string `json:"containerID"`

	// resources of the containers.
	// +required
	Resources corev1.ResourceRequirements `json:"resources"`
}

// AddOnDeploymentConfigList is a list of configurations.
//
// +kubebuilder:object:root=true
type AddOnDeploymentConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddOnDeploymentConfig `json:"items"`
}
