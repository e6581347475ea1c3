package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ManifestWork is a list of Kubernetes objects that the hub wants on one managed cluster. Its namespace on the hub
// is the name of the cluster. The agent of the cluster applies the objects, keeps them as they are written here, and
// reports on each of them in status. Deleting the ManifestWork deletes the objects, unless spec.deleteOption says
// otherwise.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].status`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ManifestWork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the objects and how to apply, watch and delete them.
	// +optional
	Spec ManifestWorkSpec `json:"spec,omitempty"`

	// status is what the agent of the cluster reports.
	// +optional
	Status ManifestWorkStatus `json:"status,omitempty,omitzero"`
}

// ManifestWorkSpec is what the hub wants on the cluster.
type ManifestWorkSpec struct {
	// workload holds the objects.
	// +optional
	Workload ManifestsTemplate `json:"workload,omitempty"`

	// deleteOption says what becomes of the objects when the ManifestWork goes. Without it they are deleted.
	// +optional
	DeleteOption *DeleteOption `json:"deleteOption,omitempty"`

	// manifestConfigs tune single objects: how to update them, which of their fields to report, and when they
	// count as complete. Where several entries match an object, the first one that sets a rule wins.
	// +optional
	ManifestConfigs []ManifestConfigOption `json:"manifestConfigs,omitempty"`

	// executor is the identity on the managed cluster that must be allowed to do what this ManifestWork asks.
	// Empty means that of the agent. Setting it needs the permission execute-as on manifestworks.
	// +optional
	Executor *ManifestWorkExecutor `json:"executor,omitempty"`
}

// ManifestsTemplate is a list of objects.
type ManifestsTemplate struct {
	// manifests are the objects to apply. The agent applies them in an order that fits their kinds (namespaces
	// and CRDs first), whatever their order here; 1 MiB in all at most.
	// +optional
	Manifests []Manifest `json:"manifests,omitempty"`
}

// Manifest is one Kubernetes object, of any kind the managed cluster serves.
//
// +kubebuilder:validation:XEmbeddedResource
// +kubebuilder:pruning:PreserveUnknownFields
type Manifest struct {
	runtime.RawExtension `json:",inline"`
}

// DeleteOption says what becomes of the applied objects when the ManifestWork is deleted.
type DeleteOption struct {
	// propagationPolicy: Foreground deletes the objects and waits until they are gone, Orphan leaves them all,
	// SelectivelyOrphan leaves those that selectivelyOrphans names.
	// +optional
	// +kubebuilder:default=Foreground
	PropagationPolicy DeletePropagationPolicyType `json:"propagationPolicy,omitempty"`

	// selectivelyOrphans names the objects to leave on the cluster, for the policy SelectivelyOrphan.
	// +optional
	SelectivelyOrphan *SelectivelyOrphan `json:"selectivelyOrphans,omitempty"`

	// ttlSecondsAfterFinished deletes the ManifestWork this many seconds after its condition Complete became True;
	// 0 means at once. Empty means never.
	// +optional
	TTLSecondsAfterFinished *int64 `json:"ttlSecondsAfterFinished,omitempty"`
}

// DeletePropagationPolicyType is what becomes of applied objects when their ManifestWork is deleted.
//
// +kubebuilder:validation:Enum=Foreground;Orphan;SelectivelyOrphan
type DeletePropagationPolicyType string

const (
	// DeletePropagationPolicyTypeForeground deletes the objects before the ManifestWork goes.
	DeletePropagationPolicyTypeForeground DeletePropagationPolicyType = "Foreground"
	// DeletePropagationPolicyTypeOrphan leaves all objects on the cluster.
	DeletePropagationPolicyTypeOrphan DeletePropagationPolicyType = "Orphan"
	// DeletePropagationPolicyTypeSelectivelyOrphan leaves the named objects on the cluster.
	DeletePropagationPolicyTypeSelectivelyOrphan DeletePropagationPolicyType = "SelectivelyOrphan"
)

// SelectivelyOrphan names objects to leave on the cluster.
type SelectivelyOrphan struct {
	// orphaningRules name one object each.
	// +optional
	OrphaningRules []OrphaningRule `json:"orphaningRules,omitempty"`
}

// OrphaningRule names one object to leave on the cluster. All fields must match exactly.
type OrphaningRule struct {
	// group of the object; empty is the core group.
	// +optional
	Group string `json:"group,omitempty"`

	// resource of the object: plural and lower case, such as configmaps.
	// +required
	Resource string `json:"resource"`

	// namespace of the object; empty when it is cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name of the object.
	// +required
	Name string `json:"name"`
}

// ResourceIdentifier names one object, or several where a field allows wildcards.
type ResourceIdentifier struct {
	// group of the object; empty is the core group.
	// +optional
	Group string `json:"group"`

	// resource of the object: plural and lower case, such as deployments.
	// +required
	Resource string `json:"resource"`

	// name of the object.
	// +required
	Name string `json:"name"`

	// namespace of the object; empty when it is cluster-scoped.
	// +optional
	Namespace string `json:"namespace"`
}

// ManifestWorkExecutor is the identity to apply with.
type ManifestWorkExecutor struct {
	// subject is the identity on the managed cluster.
	// +optional
	Subject ManifestWorkExecutorSubject `json:"subject,omitempty,omitzero"`
}

// ManifestWorkExecutorSubject is an identity on the managed cluster.
type ManifestWorkExecutorSubject struct {
	// type of the identity.
	// +required
	Type ManifestWorkExecutorSubjectType `json:"type"`

	// serviceAccount is the identity when type is ServiceAccount.
	// +optional
	ServiceAccount *ManifestWorkSubjectServiceAccount `json:"serviceAccount,omitempty"`
}

// ManifestWorkExecutorSubjectType is a kind of identity.
//
// +kubebuilder:validation:Enum=ServiceAccount
type ManifestWorkExecutorSubjectType string

// ExecutorSubjectTypeServiceAccount is a service account of the managed cluster.
const ExecutorSubjectTypeServiceAccount ManifestWorkExecutorSubjectType = "ServiceAccount"

// ManifestWorkSubjectServiceAccount names a service account of the managed cluster.
type ManifestWorkSubjectServiceAccount struct {
	// namespace of the service account.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$`
	Namespace string `json:"namespace"`

	// name of the service account.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$`
	Name string `json:"name"`
}

// ManifestWorkStatus is what the agent reports about a ManifestWork.
type ManifestWorkStatus struct {
	// conditions: Applied is True when all objects are on the cluster as written, Available when all of them
	// exist, Deleting while they are being removed. The condition rules of manifestConfigs add more, such as
	// Complete, Progressing and Degraded.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// resourceStatus reports on each object.
	// +optional
	ResourceStatus ManifestResourceStatus `json:"resourceStatus"`
}

// ManifestResourceStatus reports on each object of a ManifestWork.
type ManifestResourceStatus struct {
	// manifests has one entry for each object of spec.workload.manifests.
	// +optional
	Manifests []ManifestCondition `json:"manifests,omitempty"`
}

// ManifestCondition reports on one object of a ManifestWork.
type ManifestCondition struct {
	// resourceMeta says which object this is about.
	// +required
	ResourceMeta ManifestResourceMeta `json:"resourceMeta"`

	// statusFeedback is the fields of the object that feedbackRules ask for.
	// +optional
	StatusFeedbacks StatusFeedbackResult `json:"statusFeedback"`

	// conditions of the object: Applied, Available, StatusFeedbackSynced, and those of its conditionRules.
	// +required
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions"`
}

// ManifestResourceMeta says which object an entry is about. Where an object could not be read, only what is known
// is set.
type ManifestResourceMeta struct {
	// ordinal is the index of the object in spec.workload.manifests, from 0.
	// +required
	Ordinal int32 `json:"ordinal"`

	// group of the object; empty is the core group.
	// +optional
	Group string `json:"group"`

	// version of the object, such as v1.
	// +optional
	Version string `json:"version"`

	// kind of the object, such as Deployment.
	// +optional
	Kind string `json:"kind"`

	// resource of the object, such as deployments. Empty when the cluster does not serve the kind.
	// +optional
	Resource string `json:"resource"`

	// name of the object.
	// +optional
	Name string `json:"name"`

	// namespace of the object; empty when it is cluster-scoped.
	// +optional
	Namespace string `json:"namespace"`
}

// ManifestWorkList is a list of ManifestWorks.
//
// +kubebuilder:object:root=true
type ManifestWorkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ManifestWork `json:"items"`
}
