package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MulticlusterApplicationSetReport says how the Applications of an ApplicationSet are on the clusters that pull them. The hub writes one
// with the name and in the namespace of the ApplicationSet.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=multiclusterapplicationsetreports,scope=Namespaced,shortName=appsetreport;appsetreports
// +kubebuilder:printcolumn:name="Clusters",type=string,JSONPath=`.statuses.summary.clusters`
// +kubebuilder:printcolumn:name="Synced",type=string,JSONPath=`.statuses.summary.synced`
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.statuses.summary.healthy`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MulticlusterApplicationSetReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// statuses is how the Applications are.
	// +optional
	Statuses AppConditions `json:"statuses,omitempty,omitzero"`
}

// AppConditions is how the Applications of an ApplicationSet are.
type AppConditions struct {
	// clusterConditions has the Application of each cluster, those that are not healthy or not synced first.
	// +optional
	ClusterConditions []ClusterCondition `json:"clusterConditions,omitempty"`

	// summary counts the clusters.
	// +optional
	Summary ReportSummary `json:"summary,omitempty,omitzero"`
}

// ReportSummary counts clusters, each number as text.
type ReportSummary struct {
	// synced is how many clusters have what is in the source.
	// +optional
	Synced string `json:"synced,omitempty"`

	// notSynced is how many clusters have not, or have not said so.
	// +optional
	NotSynced string `json:"notSynced,omitempty"`

	// healthy is how many clusters have a healthy Application.
	// +optional
	Healthy string `json:"healthy,omitempty"`

	// notHealthy is how many clusters have one that is neither healthy nor in progress, or have not said how it is.
	// +optional
	NotHealthy string `json:"notHealthy,omitempty"`

	// inProgress is how many clusters have one that is becoming healthy.
	// +optional
	InProgress string `json:"inProgress,omitempty"`

	// clusters is how many clusters there are.
	// +optional
	Clusters string `json:"clusters,omitempty"`
}

// ClusterCondition is how the Application of a cluster is.
type ClusterCondition struct {
	// cluster is the name of the ManagedCluster.
	// +optional
	Cluster string `json:"cluster,omitempty"`

	// app is the Application on the hub, as namespace/name.
	// +optional
	App string `json:"app,omitempty"`

	// healthStatus is whether what is deployed is healthy.
	// +optional
	HealthStatus string `json:"healthStatus,omitempty"`

	// syncStatus is whether what is deployed is what is in the source.
	// +optional
	SyncStatus string `json:"syncStatus,omitempty"`

	// operationStatePhase is how far the last synchronization is.
	// +optional
	OperationStatePhase string `json:"operationStatePhase,omitempty"`

	// operationStateStartedAt is when the last synchronization began.
	// +optional
	OperationStateStartedAt string `json:"operationStateStartedAt,omitempty"`

	// syncRevision is the revision of the source that was compared.
	// +optional
	SyncRevision string `json:"syncRevision,omitempty"`

	// conditions say why the Application does not get to the cluster.
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is a condition as an Argo CD has it.
type Condition struct {
	// type is the kind of condition.
	// +optional
	Type string `json:"type,omitempty"`

	// message says what is the matter.
	// +optional
	Message string `json:"message,omitempty"`
}

// MulticlusterApplicationSetReportList is a list of MulticlusterApplicationSetReports.
//
// +kubebuilder:object:root=true
type MulticlusterApplicationSetReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MulticlusterApplicationSetReport `json:"items"`
}
