package install

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// otherUse says, as the rest of a sentence about a namespace, what that is for besides agents; empty if for nothing else. It goes by what
// the operator of agents goes by, which leaves such a namespace: that of a hosted ClusterManager has no label, but the kubeconfig of the
// hub. Who may not read that does without.
func otherUse(ctx context.Context, in *Cluster, name string) (string, error) {
	if name == fleet.NamespaceOperators {
		return "is that of the operators", nil
	}
	namespace, err := in.Get(ctx, installation.Reference{GroupVersionKind: installation.KindNamespace, Name: name})
	if err != nil || namespace == nil {
		return "", err
	}
	if cluster := namespace.GetLabels()[fleet.LabelClusterName]; cluster != "" {
		return "is that of ManagedCluster " + cluster, nil
	}
	if manager := namespace.GetLabels()[fleet.LabelCreatedByClusterManager]; manager != "" {
		return "is that of ClusterManager " + manager, nil
	}
	secret, err := in.Get(ctx, installation.Reference{
		GroupVersionKind: installation.KindSecret, Namespace: name, Name: fleet.SecretExternalHubKubeconfig})
	switch {
	case apierrors.IsForbidden(err):
		return "", nil
	case err != nil || secret == nil:
		return "", err
	}
	return "has Secret " + fleet.SecretExternalHubKubeconfig + ", of a hosted ClusterManager", nil
}
