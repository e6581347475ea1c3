// Package namespaceuse knows which namespaces are for something else than a hub or an agent. A namespace is deleted with the hub or the
// agent that runs in it, so operators and command line neither install there nor delete it.
package namespaceuse

import (
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Reserved are the names of namespaces in which neither a hosted hub nor an agent runs.
var Reserved = sets.New("default", "kube-system", "kube-public", "kube-node-lease", fleet.NamespaceOperators, fleet.NamespaceHub,
	fleet.NamespaceAgentAddOn, fleet.NamespaceAddOn, fleet.NamespaceCredentials)

// Of says, as the rest of a sentence about a namespace with these labels, what that is for besides agents; empty if for nothing else. It
// may be that of a managed cluster on a hub, or of a ClusterManager. That of a hosted one has no label, but the Secret with the kubeconfig
// of the hub, which hasHubKubeconfig looks for.
func Of(labels map[string]string, hasHubKubeconfig func() (bool, error)) (string, error) {
	if cluster := labels[fleet.LabelClusterName]; cluster != "" {
		return "is that of ManagedCluster " + cluster, nil
	}
	if manager := labels[fleet.LabelCreatedByClusterManager]; manager != "" {
		return "is that of ClusterManager " + manager, nil
	}
	if has, err := hasHubKubeconfig(); err != nil || !has {
		return "", err
	}
	return "has Secret " + fleet.SecretExternalHubKubeconfig + ", of a hosted ClusterManager", nil
}
