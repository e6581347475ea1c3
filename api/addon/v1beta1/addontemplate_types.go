package v1beta1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// AddOnTemplate is an add-on without code: the manifests of its agent, and how the agent registers with the hub. A
// ClusterManagementAddOn that names it among its configurations becomes such an add-on.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="ADDON NAME",type=string,JSONPath=`.spec.addonName`
type AddOnTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the template.
	// +required
	Spec AddOnTemplateSpec `json:"spec"`
}

// AddOnTemplateSpec is an add-on without code.
type AddOnTemplateSpec struct {
	// addonName is the name of the add-on.
	// +required
	AddonName string `json:"addonName"`

	// agentSpec is the spec of the ManifestWork that deploys the agent. {{NAME}} in it stands for a variable:
	// CLUSTER_NAME, INSTALL_NAMESPACE, HUB_KUBECONFIG, or one of an AddOnDeploymentConfig.
	// +required
	AgentSpec workv1.ManifestWorkSpec `json:"agentSpec"`

	// registration says how the agent registers with the hub. Without it the agent has no access to the hub.
	// +optional
	Registration []RegistrationSpec `json:"registration,omitempty"`
}

// RegistrationType is what an agent registers for.
//
// +kubebuilder:validation:Enum=KubeClient;CustomSigner
type RegistrationType string

const (
	// RegistrationTypeKubeClient is access to the API server of the hub.
	RegistrationTypeKubeClient RegistrationType = "KubeClient"
	// RegistrationTypeCustomSigner is a certificate of a signer of one's own.
	RegistrationTypeCustomSigner RegistrationType = "CustomSigner"
)

// RegistrationSpec is one registration of an agent.
type RegistrationSpec struct {
	// type: KubeClient is access to the API server of the hub, CustomSigner a certificate for anything else.
	// +required
	Type RegistrationType `json:"type"`

	// kubeClient tunes the type KubeClient.
	// +optional
	KubeClient *KubeClientRegistrationSpec `json:"kubeClient,omitempty"`

	// customSigner tunes the type CustomSigner.
	// +optional
	CustomSigner *CustomSignerRegistrationSpec `json:"customSigner,omitempty"`
}

// KubeClientRegistrationSpec is access to the API server of the hub.
type KubeClientRegistrationSpec struct {
	// hubPermissions are what the agent may do on the hub.
	// +optional
	HubPermissions []HubPermissionConfig `json:"hubPermissions,omitempty"`
}

// HubPermissionConfig is a permission on the hub.
type HubPermissionConfig struct {
	// type: CurrentCluster binds a ClusterRole in the namespace of the cluster, SingleNamespace binds a role in
	// one namespace for all clusters.
	// +required
	Type HubPermissionsBindingType `json:"type"`

	// currentCluster is the role of the type CurrentCluster.
	// +optional
	CurrentCluster *CurrentClusterBindingConfig `json:"currentCluster,omitempty"`

	// singleNamespace is the role of the type SingleNamespace.
	// +optional
	SingleNamespace *SingleNamespaceBindingConfig `json:"singleNamespace,omitempty"`
}

// HubPermissionsBindingType is where a role is bound.
//
// +kubebuilder:validation:Enum=CurrentCluster;SingleNamespace
type HubPermissionsBindingType string

const (
	// HubPermissionsBindingCurrentCluster binds a ClusterRole in the namespace of the cluster.
	HubPermissionsBindingCurrentCluster HubPermissionsBindingType = "CurrentCluster"
	// HubPermissionsBindingSingleNamespace binds a role in one namespace.
	HubPermissionsBindingSingleNamespace HubPermissionsBindingType = "SingleNamespace"
)

// CurrentClusterBindingConfig is a role in the namespace of the cluster.
type CurrentClusterBindingConfig struct {
	// clusterRoleName is the name of the ClusterRole.
	// +required
	ClusterRoleName string `json:"clusterRoleName"`
}

// SingleNamespaceBindingConfig is a role in one namespace.
type SingleNamespaceBindingConfig struct {
	// namespace in which the role is bound.
	// +required
	Namespace string `json:"namespace"`

	// roleRef is the Role of that namespace, or the ClusterRole.
	// +required
	RoleRef rbacv1.RoleRef `json:"roleRef"`
}

// CustomSignerRegistrationSpec is a certificate of a signer of one's own. The hub signs it.
type CustomSignerRegistrationSpec struct {
	// signerName of the certificate requests, such as example.com/hello.
	// +required
	// +kubebuilder:validation:MinLength=5
	// +kubebuilder:validation:MaxLength=571
	// +kubebuilder:validation:Pattern=`^([a-z0-9][a-z0-9-]*[a-z0-9]\.)+[a-z]+\/[a-z0-9-\.]+$`
	SignerName string `json:"signerName"`

	// subject of the certificate. Without it, it is that of an agent with access to the hub.
	// +optional
	Subject *TemplateSubject `json:"subject,omitempty"`

	// signingCA is the Secret of type kubernetes.io/tls with the certificate and key to sign with.
	// +required
	SigningCA SigningCARef `json:"signingCA"`
}

// TemplateSubject is the subject of a certificate.
type TemplateSubject struct {
	// user is the common name.
	// +optional
	User string `json:"user,omitempty"`

	// groups are the organisations.
	// +optional
	Groups []string `json:"groups,omitempty"`

	// organizationUnit are the organisational units.
	// +optional
	OrganizationUnits []string `json:"organizationUnit,omitempty"`
}

// SigningCARef names the Secret of a CA.
type SigningCARef struct {
	// namespace of the Secret. Empty means that of the add-on manager of the hub.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name of the Secret.
	// +required
	Name string `json:"name"`
}

// AddOnTemplateList is a list of templates.
//
// +kubebuilder:object:root=true
type AddOnTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddOnTemplate `json:"items"`
}
