package hubaccess

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
	"github.com/capstan-io/capstan/internal/cloudevents/pb"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// hubByGRPC reports on the credential for the gRPC server that the agent has obtained. The server reviews no rights, so
// this is about whether it lets the agent in.
func (c Credentials) hubByGRPC(ctx context.Context, name, cluster string) (reason, message string) {
	address, refused, err := connect(ctx, c.Hub)
	switch {
	case err != nil:
		return fleet.ReasonHubKubeConfigError, fmt.Sprintf("The hub cannot be reached with the %s of Secret %s: %v", fleet.KeyConfig, name, err)
	case refused != "":
		return fleet.ReasonHubKubeConfigUnauthorized, fmt.Sprintf("The gRPC server %s of the hub does not let the agent in with the %s of Secret %s: "+
			"%s%s", address, fleet.KeyConfig, name, refused, registersAgain)
	}
	return fleet.ReasonHubConnectionFunctional, fmt.Sprintf("The gRPC server %s of the hub lets the agent in, as cluster %s", address, cluster)
}

func (c Credentials) bootstrapByGRPC(ctx context.Context, name string) (reason, message string) {
	address, refused, err := connect(ctx, c.Bootstrap)
	switch {
	case err != nil:
		return fleet.ReasonBootstrapSecretError, fmt.Sprintf("The hub cannot be reached with the %s of Secret %s: %v", fleet.KeyConfig, name, err)
	case refused != "":
		return fleet.ReasonBootstrapSecretUnauthorized, fmt.Sprintf("The gRPC server %s of the hub does not let the agent in with the %s of Secret %s: "+
			"%s. %s", address, fleet.KeyConfig, name, refused, putNewOne)
	}
	return fleet.ReasonBootstrapSecretFunctional, fmt.Sprintf("The gRPC server %s of the hub lets the agent in with the %s of Secret %s", address,
		fleet.KeyConfig, name)
}

// connect connects to the gRPC server that the configuration of the Secret leads to, and returns its address, and why it does not let the
// client in, if it does not.
func connect(ctx context.Context, secret *corev1.Secret) (address, refused string, err error) {
	content := secret.Data[fleet.KeyConfig]
	if len(content) == 0 {
		return "", "", fmt.Errorf("it has no key %s; store the configuration of a gRPC client of the hub under it, with url, caData and token",
			fleet.KeyConfig)
	}
	config, err := grpcconfig.Parse(content)
	if err != nil {
		return "", "", err
	}
	if err := config.Inline(secret.Data); err != nil {
		return config.URL, "", err
	}
	secure, err := config.TLS()
	if err != nil {
		return config.URL, "", err
	}
	client, err := grpc.NewClient(config.URL, grpc.WithTransportCredentials(credentials.NewTLS(secure)), grpc.WithDisableServiceConfig())
	if err != nil {
		return config.URL, "", fmt.Errorf("connect to %s: %w", config.URL, err)
	}
	defer func() { _ = client.Close() }()
	refused, err = probe(ctx, client, config.Token)
	if err != nil {
		err = fmt.Errorf("connect to %s: %w", config.URL, err)
	}
	return config.URL, refused, err
}

// probe sends an event without content, which a server refuses after it has authenticated the client.
func probe(ctx context.Context, client grpc.ClientConnInterface, token string) (refused string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	_, err = pb.NewCloudEventServiceClient(client).Publish(ctx, &pb.PublishRequest{Event: &pb.CloudEvent{}})
	switch answer := status.Convert(err); answer.Code() {
	case codes.Unavailable, codes.DeadlineExceeded:
		return "", errors.New(answer.Message())
	case codes.Unauthenticated:
		return answer.Message(), nil
	default: // it has authenticated the client
		return "", nil
	}
}
