package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterGatewayProxyConfiguration says who callers are on clusters. It is the content of a file, or of an annotation of a Secret.
//
// +kubebuilder:object:root=true
type ClusterGatewayProxyConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// spec has the rules.
	Spec ClusterGatewayProxyConfigurationSpec `json:"spec"`
}

// ClusterGatewayProxyConfigurationSpec has the rules.
type ClusterGatewayProxyConfigurationSpec struct {
	// clientIdentityExchanger says who callers are on clusters.
	ClientIdentityExchanger ClientIdentityExchanger `json:"clientIdentityExchanger"`
}

// ClientIdentityExchanger is a list of rules, of which the first that matches counts. Whom none matches is impersonated.
type ClientIdentityExchanger struct {
	// rules in their order.
	// +optional
	Rules []ClientIdentityExchangeRule `json:"rules,omitempty"`
}

// ClientIdentityExchangeType is what a rule does.
type ClientIdentityExchangeType string

// What rules do.
const (
	// PrivilegedIdentityExchanger makes callers the account of the gateway.
	PrivilegedIdentityExchanger ClientIdentityExchangeType = "PrivilegedIdentityExchanger"
	// StaticMappingIdentityExchanger makes callers the target of the rule.
	StaticMappingIdentityExchanger ClientIdentityExchangeType = "StaticMappingIdentityExchanger"
	// ExternalIdentityExchanger would ask a server.
	ExternalIdentityExchanger ClientIdentityExchangeType = "ExternalIdentityExchanger"
)

// ClientIdentityExchangeRule says who some callers are on some clusters.
type ClientIdentityExchangeRule struct {
	// name of the rule, for messages.
	Name string `json:"name"`

	// type is what the rule does.
	Type ClientIdentityExchangeType `json:"type"`

	// source says for whom it is.
	Source *IdentityExchangerSource `json:"source"`

	// target is who they are there, for rules of type StaticMappingIdentityExchanger.
	// +optional
	Target *IdentityExchangerTarget `json:"target,omitempty"`

	// url is for the type ExternalIdentityExchanger.
	// +optional
	URL *string `json:"url,omitempty"`
}

// IdentityExchangerSource matches callers and clusters. All fields that are set have to match. Patterns are regular expressions for all of
// a name.
type IdentityExchangerSource struct {
	// user is the name of the caller on the hub.
	// +optional
	User *string `json:"user,omitempty"`

	// group is one of those of the caller.
	// +optional
	Group *string `json:"group,omitempty"`

	// uid of the caller.
	// +optional
	UID *string `json:"uid,omitempty"`

	// cluster is the name of the cluster.
	// +optional
	Cluster *string `json:"cluster,omitempty"`

	// userPattern is a regular expression for the name of the caller.
	// +optional
	UserPattern *string `json:"userPattern,omitempty"`

	// groupPattern is a regular expression for one of the groups of the caller.
	// +optional
	GroupPattern *string `json:"groupPattern,omitempty"`

	// clusterPattern is a regular expression for the name of the cluster.
	// +optional
	ClusterPattern *string `json:"clusterPattern,omitempty"`
}

// IdentityExchangerTarget is who callers are on a cluster.
type IdentityExchangerTarget struct {
	// user is their name there.
	// +optional
	User string `json:"user,omitempty"`

	// groups are theirs there.
	// +optional
	Groups []string `json:"groups,omitempty"`

	// uid is theirs there.
	// +optional
	UID string `json:"uid,omitempty"`
}
