package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AppliedManifestWork is the agent's record, on the managed cluster, of one ManifestWork and of the objects applied
// for it. It owns those objects: deleting it deletes them. Its name is the hash of the hub and the name of the
// ManifestWork, so that works of several hubs stay apart.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Work",type=string,JSONPath=`.spec.manifestWorkName`
// +kubebuilder:printcolumn:name="Evicting Since",type=date,JSONPath=`.status.evictionStartTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AppliedManifestWork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which ManifestWork this is the record of.
	// +optional
	Spec AppliedManifestWorkSpec `json:"spec,omitempty"`

	// status is the objects applied.
	// +optional
	Status AppliedManifestWorkStatus `json:"status,omitempty,omitzero"`
}

// AppliedManifestWorkSpec says which ManifestWork is meant.
type AppliedManifestWorkSpec struct {
	// hubHash is the hub: the SHA-256 of its URL, in lower-case hexadecimal.
	// +required
	HubHash string `json:"hubHash"`

	// agentID is the agent that made this record. An agent evicts the records of its own ID, also of hubs that it
	// has left.
	// +optional
	AgentID string `json:"agentID,omitempty"`

	// manifestWorkName is the name of the ManifestWork on the hub.
	// +required
	ManifestWorkName string `json:"manifestWorkName"`
}

// AppliedManifestWorkStatus is what has been applied.
type AppliedManifestWorkStatus struct {
	// appliedResources are the objects applied for the ManifestWork. Those that are no longer in it are deleted,
	// and stay listed until they are gone.
	// +optional
	AppliedResources []AppliedManifestResourceMeta `json:"appliedResources,omitempty"`

	// evictionStartTime is when the agent found the ManifestWork gone from the hub. When it stays so for the
	// grace period of the agent (60 minutes unless set otherwise), this record is deleted with its objects.
	// +optional
	EvictionStartTime *metav1.Time `json:"evictionStartTime,omitempty"`
}

// AppliedManifestResourceMeta is one applied object.
type AppliedManifestResourceMeta struct {
	ResourceIdentifier `json:",inline"`

	// version through which the object was applied, such as v1.
	// +required
	Version string `json:"version"`

	// uid of the object. An object of the same name and another uid is not the one that was applied.
	// +optional
	UID string `json:"uid,omitempty"`
}

// AppliedManifestWorkList is a list of AppliedManifestWorks.
//
// +kubebuilder:object:root=true
type AppliedManifestWorkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AppliedManifestWork `json:"items"`
}
