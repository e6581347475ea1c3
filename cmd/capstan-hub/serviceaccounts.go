package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/hub"
	"github.com/capstan-io/capstan/internal/ignoredflags"
)

type serviceAccountsFlags struct {
	addOnControllersFlags
	gates *featuregates.Set
}

func newServiceAccountsCommand() *cobra.Command {
	flags := serviceAccountsFlags{
		addOnControllersFlags: newAddOnControllersFlags(hub.GroupServiceAccounts),
		gates:                 featuregates.ServiceAccounts(),
	}
	command := &cobra.Command{
		Use:   hub.GroupServiceAccounts,
		Short: "Run the controllers of managed service accounts against an existing Kubernetes API",
		Long: `Run the controllers of managed service accounts against an existing Kubernetes API.

A standalone hub has them built in. In an existing cluster they are a process of their
own, which may let agents write Secrets in the namespaces of their clusters. The Helm
chart managed-serviceaccount installs it with its permissions. Several processes may
run; a Lease decides which one acts.`,
		Example: `  capstan-hub managed-serviceaccount --kubeconfig ~/.kube/config`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return flags.run(command.Context())
		},
	}
	flags.add(command.Flags())
	return command
}

func (f *serviceAccountsFlags) add(flags *pflag.FlagSet) {
	f.addOnControllersFlags.add(flags)
	f.gates.AddFlag(flags)
	const builtIn = "the agent is part of capstan-agent, and the ClusterManagementAddOn says on which clusters the add-on is"
	f.accepted.Add(flags, "agent-image-name", ignoredflags.Text, builtIn)
	f.accepted.Add(flags, "agent-image-pull-secret", ignoredflags.Text, builtIn)
	f.accepted.Add(flags, "agent-install-all", ignoredflags.Switch, builtIn)
}

func (f *serviceAccountsFlags) run(ctx context.Context) error {
	if err := f.logs.Apply(ctx); err != nil {
		return err
	}
	f.gates.Log(klog.FromContext(ctx))
	controllers, err := f.options()
	if err != nil {
		return err
	}
	return f.addOnControllersFlags.run(ctx, controllers)
}

// options has the gates of the hub that the gates of this program stand for.
func (f *serviceAccountsFlags) options() (hub.Options, error) {
	gates := featuregates.Hub()
	err := gates.Set(fmt.Sprintf("%s=%t,%s=%t", featuregates.ManagedServiceAccountEphemeralIdentity,
		f.gates.Enabled(featuregates.EphemeralIdentity), featuregates.ClusterProfile, f.gates.Enabled(featuregates.ClusterProfile)))
	return hub.Options{Gates: gates}, err
}
