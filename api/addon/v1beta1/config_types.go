package v1beta1

// ConfigGroupResource is a type of configurations.
type ConfigGroupResource struct {
	// group of the type, such as addon.open-cluster-management.io.
	// +optional
	// +kubebuilder:default=""
	Group string `json:"group"`

	// resource of the type: plural and lower case, such as addondeploymentconfigs.
	// +required
	// +kubebuilder:validation:MinLength=1
	Resource string `json:"resource"`
}

// ConfigReferent names a configuration of a known type.
type ConfigReferent struct {
	// namespace of the configuration; empty when it is cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name of the configuration.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// AddOnConfig names a configuration.
type AddOnConfig struct {
	ConfigGroupResource `json:",inline"`
	ConfigReferent      `json:",inline"`
}

// ConfigSpecHash names a configuration in one state.
type ConfigSpecHash struct {
	ConfigReferent `json:",inline"`

	// specHash is the SHA-256 of what the configuration contains apart from its metadata and status, in lower-case
	// hexadecimal. An empty one stands for a configuration that does not exist yet, or whose turn has not come:
	// its readers wait for it.
	// +optional
	SpecHash string `json:"specHash"`
}

// AddOnMeta describes an add-on to people.
type AddOnMeta struct {
	// displayName is the name to show.
	// +optional
	DisplayName string `json:"displayName,omitempty"`

	// description of the add-on.
	// +optional
	Description string `json:"description,omitempty"`
}
