package components

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KlusterletInfo is what the agents in a cluster consist of.
type KlusterletInfo struct {
	// Operator is the operator of Klusterlets; nil if there is none.
	Operator    *Running     `json:"operator,omitempty"`
	Klusterlets []Klusterlet `json:"klusterlets"`
	// CRDs are the kinds that agents need.
	CRDs []CRD `json:"customResourceDefinitions"`
}

// Klusterlet is one agent.
type Klusterlet struct {
	Name        string `json:"name"`
	ClusterName string `json:"clusterName"`
	Mode        string `json:"mode"`
	// Namespace is where the agent runs.
	Namespace  string             `json:"namespace"`
	Components []Running          `json:"components"`
	Conditions []metav1.Condition `json:"conditions"`
}
