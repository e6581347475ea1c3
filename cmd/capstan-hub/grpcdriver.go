package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/hub"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

const (
	flagGRPCUsers           = "auto-approved-grpc-users"
	flagGRPCCAFile          = "grpc-ca-file"
	flagGRPCKeyFile         = "grpc-key-file"
	flagGRPCSigningDuration = "grpc-signing-duration"
	flagGRPCNamespace       = "grpc-server-namespace"
)

// leastGRPCSigningDuration is what an agent needs to renew its certificate in time.
const leastGRPCSigningDuration = 10 * time.Minute

// grpcFlags are about agents that register by the gRPC server of the hub.
type grpcFlags struct {
	users           []string
	caFile          string
	keyFile         string
	signingDuration time.Duration
	namespace       string
}

func newGRPCFlags() grpcFlags {
	return grpcFlags{signingDuration: 720 * time.Hour, namespace: hubNamespace()}
}

func (f *grpcFlags) add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.users, flagGRPCUsers, f.users,
		"Users whose clusters are approved and accepted without a person when they register by the gRPC server; nobody's are without the feature gate "+
			string(featuregates.ManagedClusterAutoApproval)+".")
	flags.StringVar(&f.caFile, flagGRPCCAFile, f.caFile, "File with the certificate that signs those of agents for the gRPC server.")
	flags.StringVar(&f.keyFile, flagGRPCKeyFile, f.keyFile, "File with its key.")
	flags.DurationVar(&f.signingDuration, flagGRPCSigningDuration, f.signingDuration,
		"How long certificates for the gRPC server are valid at most, at least "+leastGRPCSigningDuration.String()+".")
	flags.StringVar(&f.namespace, flagGRPCNamespace, f.namespace,
		"Namespace of the service account "+fleet.ServiceAccountGRPCServer+" of the gRPC server, which requests certificates in the name of agents.")
}

// server is the user as whom the gRPC server requests certificates, whether or not agents register by these controllers.
func (f *grpcFlags) server() (string, error) {
	if problems := validation.IsDNS1123Label(f.namespace); len(problems) > 0 {
		return "", fmt.Errorf("--%s=%q cannot be the name of a namespace: %s", flagGRPCNamespace, f.namespace, strings.Join(problems, "; "))
	}
	return fleet.GRPCServerUser(f.namespace), nil
}

// options are nil if agents do not register by gRPC.
func (f *grpcFlags) options(enabled, autoApproval bool) (*hub.GRPCOptions, error) {
	if !enabled {
		return nil, nil
	}
	if f.caFile == "" || f.keyFile == "" {
		return nil, fmt.Errorf("--%s=%s needs what signs the certificates of agents: set --%s and --%s", flagDrivers, driverGRPC, flagGRPCCAFile,
			flagGRPCKeyFile)
	}
	if f.signingDuration < leastGRPCSigningDuration {
		return nil, fmt.Errorf("--%s is %s, want at least %s", flagGRPCSigningDuration, f.signingDuration, leastGRPCSigningDuration)
	}
	o := &hub.GRPCOptions{CAFile: f.caFile, KeyFile: f.keyFile, LongestValidity: f.signingDuration,
		GRPC: signingrequest.GRPC{Server: fleet.GRPCServerUser(f.namespace)}}
	if autoApproval {
		o.Users = f.users
	}
	return o, nil
}
