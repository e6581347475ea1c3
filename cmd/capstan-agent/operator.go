package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-io/capstan/internal/ignoredflags"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/klusterlet"
)

const (
	// operatorLease is the Lease by which one of several operators is the one that acts.
	operatorLease = "klusterlet-lock"
	// defaultImage is where releases are.
	defaultImage = "ghcr.io/capstan-io/capstan-agent:"
)

type operatorFlags struct {
	frame.Flags
	install klusterlet.Options
}

func newOperatorCommand() *cobra.Command {
	flags := operatorFlags{
		Flags:   frame.Flags{Lease: operatorLease, UserAgent: fleet.KlusterletOperatorUserAgent},
		install: klusterlet.Options{Options: frame.Options{Image: os.Getenv(frame.EnvImage)}, AWSCLIImage: klusterlet.DefaultAWSCLIImage},
	}
	command := &cobra.Command{
		Use:   "operator",
		Short: "Install agents into Kubernetes clusters as Klusterlets describe them",
		Long: `Install agents into Kubernetes clusters as Klusterlets describe them.

The operator makes the Deployments and permissions of agents in the cluster that it runs in.
For a Klusterlet with the mode Hosted or SingletonHosted, the agent runs there, too, and
manages another cluster. What is changed or deleted by others is restored at once.`,
		Example: `  capstan-agent operator --kubeconfig ~/.kube/config`,
		Args:    cobra.NoArgs,
		// The frame of the operators logs, by flags that go before those of all commands.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE:              func(command *cobra.Command, _ []string) error { return flags.run(command.Context()) },
	}
	flags.add(command.Flags())
	return command
}

func (f *operatorFlags) add(flags *pflag.FlagSet) {
	f.Add(flags, &f.install.Options, "Klusterlet")
	flags.BoolVar(&f.install.WithoutAddOnNamespace, "disable-default-addon-namespace", f.install.WithoutAddOnNamespace,
		"Do not create the namespace "+fleet.NamespaceAgentAddOn+".")
	flags.StringVar(&f.install.AWSCLIImage, "aws-cli-image", f.install.AWSCLIImage,
		"Image with the AWS command line, for agents that register by AWS IAM, such as one of another registry; "+
			"empty to have none, as agents of this project can do without.")
	f.Accepted.Add(flags, "skip-placeholder-hub-secret", ignoredflags.Switch, "no Secret is created before the agent registers")
}

func (f *operatorFlags) run(ctx context.Context) error {
	if err := f.complete(); err != nil {
		return err
	}
	return f.Run(ctx, f.install.Namespace, klusterlet.ManagerOptions(f.install.Namespace),
		func(manager ctrl.Manager) error { return klusterlet.Register(ctx, manager, f.install) })
}

// complete chooses the image, and refuses what makes no sense.
func (f *operatorFlags) complete() error {
	if f.install.Image == "" {
		f.install.Image = defaultImage + f.install.Version
	}
	return f.Complete(&f.install.Options)
}
