package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterPermission gives rights on a managed cluster, in whose namespace on the hub it is. Its roles and bindings have its name there,
// unless they name themselves. Subjects may be ManagedServiceAccounts of the cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusterpermissions,scope=Namespaced
// +kubebuilder:subresource:status
type ClusterPermission struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is which rights who has.
	// +required
	Spec ClusterPermissionSpec `json:"spec"`

	// status tells whether the rights are on the cluster.
	// +optional
	Status ClusterPermissionStatus `json:"status,omitempty,omitzero"`
}

// ClusterPermissionSpec is which rights who has.
//
// +kubebuilder:validation:XValidation:rule="has(self.clusterRole) || has(self.clusterRoleBinding) || (has(self.roles) && size(self.roles) > 0) || (has(self.roleBindings) && size(self.roleBindings) > 0)",message="at least one of clusterRole, clusterRoleBinding, roles and roleBindings is needed"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterRoleBinding) || has(self.clusterRole) || has(self.clusterRoleBinding.roleRef)",message="clusterRoleBinding needs clusterRole, or a roleRef to an existing ClusterRole"
type ClusterPermissionSpec struct {
	// clusterRole is a ClusterRole on the cluster.
	// +optional
	ClusterRole *ClusterRole `json:"clusterRole,omitempty"`

	// clusterRoleBinding is a ClusterRoleBinding on the cluster.
	// +optional
	ClusterRoleBinding *ClusterRoleBinding `json:"clusterRoleBinding,omitempty"`

	// roles are Roles on the cluster.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Roles []Role `json:"roles,omitempty"`

	// roleBindings are RoleBindings on the cluster.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	RoleBindings []RoleBinding `json:"roleBindings,omitempty"`
}

// ClusterRole is the content of a ClusterRole.
type ClusterRole struct {
	// rules are what it allows.
	// +required
	Rules []rbacv1.PolicyRule `json:"rules"`
}

// ClusterRoleBinding gives the rights of a ClusterRole to subjects.
//
// +kubebuilder:validation:XValidation:rule="has(self.subject) != (has(self.subjects) && size(self.subjects) > 0)",message="either subject or subjects is needed"
// +kubebuilder:validation:XValidation:rule="!has(self.roleRef) || self.roleRef.kind == 'ClusterRole'",message="the roleRef of a clusterRoleBinding has the kind ClusterRole"
type ClusterRoleBinding struct {
	// name of the ClusterRoleBinding on the cluster. It is that of the ClusterPermission by default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// subject is who has the rights.
	// +optional
	Subject *rbacv1.Subject `json:"subject,omitempty"`

	// subjects are who have the rights, if there are several.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Subjects []rbacv1.Subject `json:"subjects,omitempty"`

	// roleRef is the ClusterRole. It is the one of spec.clusterRole by default.
	// +optional
	RoleRef *RoleRef `json:"roleRef,omitempty"`
}

// Role is the content of a Role, and its namespace on the cluster, which has to exist.
type Role struct {
	// namespace of the Role on the cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// rules are what it allows.
	// +required
	Rules []rbacv1.PolicyRule `json:"rules"`
}

// RoleBinding gives the rights of a Role or a ClusterRole in a namespace to subjects.
//
// +kubebuilder:validation:XValidation:rule="has(self.subject) != (has(self.subjects) && size(self.subjects) > 0)",message="either subject or subjects is needed"
type RoleBinding struct {
	// namespace of the RoleBinding on the cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// name of the RoleBinding on the cluster. It is that of the ClusterPermission by default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// subject is who has the rights.
	// +optional
	Subject *rbacv1.Subject `json:"subject,omitempty"`

	// subjects are who have the rights, if there are several.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Subjects []rbacv1.Subject `json:"subjects,omitempty"`

	// roleRef is the Role or ClusterRole.
	// +required
	RoleRef RoleRef `json:"roleRef"`
}

// RoleRef refers to a Role or a ClusterRole.
type RoleRef struct {
	// apiGroup is rbac.authorization.k8s.io.
	// +optional
	// +kubebuilder:validation:Enum="";rbac.authorization.k8s.io
	APIGroup string `json:"apiGroup,omitempty"`

	// kind is Role or ClusterRole.
	// +required
	// +kubebuilder:validation:Enum=Role;ClusterRole
	Kind string `json:"kind"`

	// name of the role. It is that of the ClusterPermission by default, whose role it then is.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// ClusterPermissionStatus tells whether the rights are on the cluster.
type ClusterPermissionStatus struct {
	// conditions: AppliedRBACManifestWork.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterPermissionList is a list of ClusterPermissions.
//
// +kubebuilder:object:root=true
type ClusterPermissionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterPermission `json:"items"`
}
