package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ManagedServiceAccount asks, in the namespace of a cluster on the hub, for a service account of the same name on that
// cluster and for its token, which the add-on managed-serviceaccount writes to a Secret next to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=managedserviceaccounts,scope=Namespaced
// +kubebuilder:subresource:status
type ManagedServiceAccount struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how long tokens and the account live.
	// +required
	Spec ManagedServiceAccountSpec `json:"spec"`

	// status says where the token is.
	// +optional
	Status ManagedServiceAccountStatus `json:"status,omitempty,omitzero"`
}

// ManagedServiceAccountSpec says how long tokens and the account live.
type ManagedServiceAccountSpec struct {
	// rotation of the token.
	// +required
	Rotation ManagedServiceAccountRotation `json:"rotation"`

	// ttlSecondsAfterCreation is after how many seconds the hub deletes this object again. Without it the object stays.
	// +optional
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterCreation *int32 `json:"ttlSecondsAfterCreation,omitempty"`
}

// ManagedServiceAccountRotation is how tokens are renewed.
type ManagedServiceAccountRotation struct {
	// enabled has no effect any more: tokens are always renewed.
	// +optional
	// +kubebuilder:default=true
	Enabled bool `json:"enabled"`

	// validity is the lifetime of a token, of at least 10 minutes; the API server of the cluster may issue tokens with a shorter one. A token
	// is renewed when a fifth of its lifetime is left.
	// +optional
	// +kubebuilder:default="24h0m0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10m')",message="validity must be a duration of at least 10m, such as 24h: clusters issue no tokens with a shorter one"
	Validity metav1.Duration `json:"validity"`
}

// ManagedServiceAccountStatus says where the token is.
type ManagedServiceAccountStatus struct {
	// conditions: SecretCreated and TokenReported.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// expirationTimestamp is when the token expires.
	// +optional
	ExpirationTimestamp *metav1.Time `json:"expirationTimestamp,omitempty"`

	// tokenSecretRef is the Secret with the token, in the same namespace.
	// +optional
	TokenSecretRef *SecretRef `json:"tokenSecretRef,omitempty"`
}

// SecretRef is a Secret in the same namespace.
type SecretRef struct {
	// lastRefreshTimestamp is when the token in the Secret was last renewed.
	// +required
	LastRefreshTimestamp metav1.Time `json:"lastRefreshTimestamp"`

	// name of the Secret.
	// +required
	Name string `json:"name"`
}

// ManagedServiceAccountList is a list of ManagedServiceAccounts.
//
// +kubebuilder:object:root=true
type ManagedServiceAccountList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ManagedServiceAccount `json:"items"`
}
