package install

import (
	"context"
	"fmt"
	"os"

	certutil "k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
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
		return hub.GRPCAuthority(ctx)
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
