package install

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/namespaceuse"
)

// otherUse says, as the rest of a sentence about a namespace, what that is for besides agents; empty if for nothing else. The operator of
// agents leaves such a namespace. Who may not read Secrets in it does without.
func otherUse(ctx context.Context, in *Cluster, name string) (string, error) {
	if name == fleet.NamespaceOperators {
		return "is that of the operators", nil
	}
	namespace, err := in.Get(ctx, installation.Reference{GroupVersionKind: installation.KindNamespace, Name: name})
	if err != nil || namespace == nil {
		return "", err
	}
	return namespaceuse.Of(namespace.GetLabels(), func() (bool, error) {
		secret, err := in.Get(ctx, installation.Reference{
			GroupVersionKind: installation.KindSecret, Namespace: name, Name: fleet.SecretExternalHubKubeconfig})
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return secret != nil, err
	})
}
