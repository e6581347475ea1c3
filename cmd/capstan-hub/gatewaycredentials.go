package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capstan-io/capstan/internal/hub"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/gateway"
)

type gatewayCredentialsFlags struct {
	addOnControllersFlags
	namespace string
}

func newGatewayCredentialsCommand() *cobra.Command {
	flags := gatewayCredentialsFlags{
		addOnControllersFlags: newAddOnControllersFlags(hub.GroupGatewayCredentials), namespace: gateway.DefaultNamespace,
	}
	command := &cobra.Command{
		Use:   hub.GroupGatewayCredentials,
		Short: "Give a gateway in an existing cluster its credentials for clusters",
		Long: `Give a gateway in an existing cluster its credentials for clusters.

On each cluster with the add-on cluster-gateway, it asks for a ManagedServiceAccount
cluster-gateway, and copies its token, and how the cluster is reached, to a Secret that the
gateway reads. Of other Secrets of clusters it reads none. A standalone hub has this built in. The Helm chart
cluster-gateway-addon-manager installs it with its permissions, with
manualSecretManagement: false. Several processes may run; a Lease decides which one acts.`,
		Example: `  capstan-hub gateway-credentials --kubeconfig ~/.kube/config`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return flags.run(command.Context())
		},
	}
	flags.add(command.Flags())
	return command
}

func (f *gatewayCredentialsFlags) add(flags *pflag.FlagSet) {
	f.addOnControllersFlags.add(flags)
	flags.StringVar(&f.namespace, flagSecretNamespace, f.namespace, "Namespace of the Secrets that the gateway reads.")
}

func (f *gatewayCredentialsFlags) run(ctx context.Context) error {
	if err := f.logs.Apply(ctx); err != nil {
		return err
	}
	controllers, err := f.options()
	if err != nil {
		return err
	}
	return f.addOnControllersFlags.run(ctx, controllers)
}

func (f *gatewayCredentialsFlags) options() (hub.Options, error) {
	if problems := validation.IsDNS1123Label(f.namespace); len(problems) > 0 {
		return hub.Options{}, fmt.Errorf("--%s=%q cannot be the name of a namespace: %s", flagSecretNamespace, f.namespace, strings.Join(problems, "; "))
	}
	return hub.Options{GatewayNamespace: f.namespace, GatewayAccount: fleet.AddOnClusterGateway}, nil
}
