package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// AddOnDeploymentConfig says how the agents of add-ons are deployed: where, from which registry, behind which proxy,
// with which resources. Add-ons refer to it in their configs.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Namespaced
type AddOnDeploymentConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the configuration.
	// +required
	Spec addonv1beta1.AddOnDeploymentConfigSpec `json:"spec"`
}

// AddOnDeploymentConfigList is a list of configurations.
//
// +kubebuilder:object:root=true
type AddOnDeploymentConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddOnDeploymentConfig `json:"items"`
}

// AddOnTemplate is an add-on without code: the manifests of its agent, and how the agent registers with the hub. A
// ClusterManagementAddOn that names it among its configurations becomes such an add-on.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="ADDON NAME",type=string,JSONPath=`.spec.addonName`
type AddOnTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the template.
	// +required
	Spec addonv1beta1.AddOnTemplateSpec `json:"spec"`
}

// AddOnTemplateList is a list of templates.
//
// +kubebuilder:object:root=true
type AddOnTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddOnTemplate `json:"items"`
}
