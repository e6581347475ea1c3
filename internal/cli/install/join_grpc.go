package install

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	certutil "k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// grpcConfig is what an agent joins with through the gRPC server of the hub; empty if it joins otherwise.
func (c *clusterJoin) grpcConfig(ctx context.Context, hub *hubapi.Hub) (string, error) {
	driver := &c.driver
	if driver.registration != driverGRPC {
		return "", nil
	}
	ca, err := driver.grpc.authority(ctx, hub)
	if err != nil {
		return "", err
	}
	config := grpcconfig.Config{URL: driver.grpc.server, Token: c.invitation.Token, CAData: ca}
	content, err := config.Marshal()
	return string(content), err
}

// authority is the certificates to verify the gRPC server with: those of the file, or those that the hub shows to those who join.
func (f *agentGRPCFlags) authority(ctx context.Context, hub *hubapi.Hub) ([]byte, error) {
	if f.caFile == "" {
		return grpcAuthority(ctx, hub)
	}
	content, err := os.ReadFile(f.caFile)
	if err == nil {
		_, err = certutil.ParseCertsPEM(content)
	}
	if err != nil {
		return nil, fmt.Errorf("--grpc-ca-file: %w", err)
	}
	return content, nil
}

// grpcAuthority returns the certificates, in PEM, that the hub publishes to verify its gRPC server with. Who has a token to join with may
// read them.
func grpcAuthority(ctx context.Context, hub *hubapi.Hub) ([]byte, error) {
	const doing = "read the certificate authority of the gRPC server"
	const otherwise = "; name a file with the certificates to verify the server with: --grpc-ca-file FILE"
	configMap := &corev1.ConfigMap{}
	err := hub.Client(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(fleet.NamespaceHub).Get(ctx, fleet.ConfigMapCABundle, configMap)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the hub has no ConfigMap %s/%s%s", fleet.NamespaceHub, fleet.ConfigMapCABundle, otherwise)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("the token may not read ConfigMap %s/%s of the hub%s", fleet.NamespaceHub, fleet.ConfigMapCABundle, otherwise)
	case err != nil:
		return nil, hub.Explain(doing, err)
	}
	bundle := []byte(configMap.Data[fleet.KeyCABundle])
	if _, err := certutil.ParseCertsPEM(bundle); err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s of the hub, key %s: %w%s", fleet.NamespaceHub, fleet.ConfigMapCABundle, fleet.KeyCABundle, err,
			otherwise)
	}
	return bundle, nil
}
