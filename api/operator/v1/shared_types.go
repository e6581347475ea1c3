package v1

import corev1 "k8s.io/api/core/v1"

// NodePlacement says on which nodes pods run.
type NodePlacement struct {
	// nodeSelector are the labels that the nodes must have.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations are the taints of nodes that do not matter.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// ResourceRequirement says what resources containers get.
type ResourceRequirement struct {
	// type: Default requests little CPU and memory without limits, BestEffort requests nothing,
	// ResourceRequirement takes resourceRequirements.
	// +optional
	// +kubebuilder:default=Default
	Type ResourceQosClass `json:"type,omitempty"`

	// resourceRequirements of every container, for the type ResourceRequirement.
	// +optional
	ResourceRequirements *corev1.ResourceRequirements `json:"resourceRequirements,omitempty"`
}

// ResourceQosClass is a choice of resources.
//
// +kubebuilder:validation:Enum=Default;BestEffort;ResourceRequirement
type ResourceQosClass string

const (
	// ResourceQosClassDefault requests little and has no limits.
	ResourceQosClassDefault ResourceQosClass = "Default"
	// ResourceQosClassBestEffort requests nothing.
	ResourceQosClassBestEffort ResourceQosClass = "BestEffort"
	// ResourceQosClassResourceRequirement takes the given requirements.
	ResourceQosClassResourceRequirement ResourceQosClass = "ResourceRequirement"
)

// FeatureGate switches a feature on or off.
type FeatureGate struct {
	// feature is the name of the feature gate. An unknown one is reported in the condition ValidFeatureGates.
	// +required
	Feature string `json:"feature"`

	// mode: Enable or Disable.
	// +optional
	// +kubebuilder:default=Disable
	Mode FeatureGateModeType `json:"mode,omitempty"`
}

// FeatureGateModeType switches a feature.
//
// +kubebuilder:validation:Enum=Enable;Disable
type FeatureGateModeType string

const (
	// FeatureGateModeTypeEnable switches the feature on.
	FeatureGateModeTypeEnable FeatureGateModeType = "Enable"
	// FeatureGateModeTypeDisable switches the feature off.
	FeatureGateModeTypeDisable FeatureGateModeType = "Disable"
)

// RegistrationAuthType is how agents prove to the hub who they are.
//
// +kubebuilder:validation:Enum=csr;awsirsa;grpc
type RegistrationAuthType string

const (
	// RegistrationAuthTypeCSR is by client certificates from certificate signing requests.
	RegistrationAuthTypeCSR RegistrationAuthType = "csr"
	// RegistrationAuthTypeAWSIRSA is by AWS IAM, between EKS clusters.
	RegistrationAuthTypeAWSIRSA RegistrationAuthType = "awsirsa"
	// RegistrationAuthTypeGRPC is by client certificates for the gRPC server of the hub.
	RegistrationAuthTypeGRPC RegistrationAuthType = "grpc"
)

// GenerationStatus is a generation of an object that the operator applied.
type GenerationStatus struct {
	// group of the object; empty is the core group.
	// +required
	Group string `json:"group"`

	// version of the object, such as v1.
	// +required
	Version string `json:"version"`

	// resource of the object, such as deployments.
	// +required
	Resource string `json:"resource"`

	// namespace of the object; empty when it is cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name of the object.
	// +required
	Name string `json:"name"`

	// lastGeneration is the generation after the operator last wrote the object.
	// +required
	LastGeneration int64 `json:"lastGeneration"`
}

// RelatedResourceMeta names an object that the operator applied.
type RelatedResourceMeta struct {
	// group of the object; empty is the core group.
	// +required
	Group string `json:"group"`

	// version of the object, such as v1.
	// +required
	Version string `json:"version"`

	// resource of the object, such as deployments.
	// +required
	Resource string `json:"resource"`

	// namespace of the object; empty when it is cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name of the object.
	// +required
	Name string `json:"name"`
}
