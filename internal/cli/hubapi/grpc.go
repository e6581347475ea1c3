package hubapi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	certutil "k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// GRPCAuthority returns the certificates, in PEM, that the hub publishes to verify its gRPC server with. Who has a token to join with may
// read them.
func (h *Hub) GRPCAuthority(ctx context.Context) ([]byte, error) {
	const doing = "read the certificate authority of the gRPC server"
	const otherwise = "; name a file with the certificates to verify the server with: --grpc-ca-file FILE"
	configMap := &corev1.ConfigMap{}
	err := h.Client(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(fleet.NamespaceHub).Get(ctx, fleet.ConfigMapCABundle, configMap)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the hub has no ConfigMap %s/%s%s", fleet.NamespaceHub, fleet.ConfigMapCABundle, otherwise)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("the token may not read ConfigMap %s/%s of the hub%s", fleet.NamespaceHub, fleet.ConfigMapCABundle, otherwise)
	case err != nil:
		return nil, h.Explain(doing, err)
	}
	bundle := []byte(configMap.Data[fleet.KeyCABundle])
	if _, err := certutil.ParseCertsPEM(bundle); err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s of the hub, key %s: %w%s", fleet.NamespaceHub, fleet.ConfigMapCABundle, fleet.KeyCABundle, err,
			otherwise)
	}
	return bundle, nil
}
