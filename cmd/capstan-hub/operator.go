package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/clustermanager"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// operatorLease is the Lease by which one of several operators is the one that acts.
const operatorLease = "cluster-manager-lock"

// envAgentImage is the variable with the image of the agent in clusters that hubs import.
const envAgentImage = "AGENT_IMAGE"

type operatorFlags struct {
	frame.Flags
	install clustermanager.Options
}

func newOperatorCommand() *cobra.Command {
	flags := operatorFlags{
		Flags: frame.Flags{Lease: operatorLease},
		install: clustermanager.Options{
			Options:    frame.Options{Image: os.Getenv(frame.EnvImage), PullSecret: fleet.SecretImagePullCredentials},
			AgentImage: os.Getenv(envAgentImage)},
	}
	command := &cobra.Command{
		Use:   "operator",
		Short: "Install hubs into Kubernetes clusters as ClusterManagers describe them",
		Long: `Install hubs into Kubernetes clusters as ClusterManagers describe them.

The operator makes the Deployments, permissions, certificates and webhooks of a hub in the
cluster that it runs in, or, for a ClusterManager with the mode Hosted, runs the components
of a hub that is elsewhere. What is changed or deleted by others is restored at once.`,
		Example: `  capstan-hub operator --kubeconfig ~/.kube/config`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return flags.run(command.Context())
		},
	}
	flags.add(command.Flags())
	return command
}

func (f *operatorFlags) add(flags *pflag.FlagSet) {
	f.Add(flags, &f.install.Options, "ClusterManager")
	flags.StringVar(&f.install.PullSecret, "image-pull-secret-name", f.install.PullSecret,
		"Secret in the namespace of the operator that is copied to where the components of a hub run, to pull their images with.")
	flags.BoolVar(&f.install.SkipRemoveCRDs, "skip-remove-crds", f.install.SkipRemoveCRDs,
		"Leave the CRDs of a hub, and all that is stored of them, when its ClusterManager is deleted.")
}

func (f *operatorFlags) run(ctx context.Context) error {
	if err := f.Complete(&f.install.Options); err != nil {
		return err
	}
	return f.Run(ctx, f.install.Namespace, clustermanager.ManagerOptions(f.install.Namespace),
		func(manager ctrl.Manager) error { return clustermanager.Register(ctx, manager, f.install) })
}
