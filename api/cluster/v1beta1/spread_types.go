package v1beta1

// SpreadPolicy spreads the selected clusters over topologies.
type SpreadPolicy struct {
	// spreadConstraints are 8 at most. Of those that cannot be met together, the earlier ones come first.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	SpreadConstraints []SpreadConstraintsTerm `json:"spreadConstraints,omitempty"`
}

// SpreadConstraintsTerm spreads the selected clusters over the values of one label or claim.
type SpreadConstraintsTerm struct {
	// topologyKey is the name of the label or claim, such as topology.kubernetes.io/region.
	// +required
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	// +kubebuilder:validation:MaxLength=316
	TopologyKey string `json:"topologyKey"`

	// topologyKeyType: Label or Claim.
	// +required
	TopologyKeyType TopologyKeyType `json:"topologyKeyType"`

	// maxSkew is how many clusters more one value may have selected than another.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	MaxSkew int32 `json:"maxSkew,omitempty"`

	// whenUnsatisfiable: ScheduleAnyway selects clusters even so, with those first that make the skew least;
	// DoNotSchedule rather selects fewer.
	// +optional
	// +kubebuilder:default=ScheduleAnyway
	WhenUnsatisfiable UnsatisfiableMaxSkewAction `json:"whenUnsatisfiable,omitempty"`
}

// TopologyKeyType is where the key of a topology is found.
//
// +kubebuilder:validation:Enum=Label;Claim
type TopologyKeyType string

const (
	// TopologyKeyTypeLabel is a label of the ManagedCluster.
	TopologyKeyTypeLabel TopologyKeyType = "Label"
	// TopologyKeyTypeClaim is a claim of the ManagedCluster.
	TopologyKeyTypeClaim TopologyKeyType = "Claim"
)

// UnsatisfiableMaxSkewAction is what to do when maxSkew cannot be kept.
//
// +kubebuilder:validation:Enum=DoNotSchedule;ScheduleAnyway
type UnsatisfiableMaxSkewAction string

const (
	// DoNotSchedule selects fewer clusters.
	DoNotSchedule UnsatisfiableMaxSkewAction = "DoNotSchedule"
	// ScheduleAnyway selects clusters even so.
	ScheduleAnyway UnsatisfiableMaxSkewAction = "ScheduleAnyway"
)
