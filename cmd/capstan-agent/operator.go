package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/ignoredflags"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/klusterlet"
	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/secureserving"
)

const (
	// operatorLease is the Lease by which one of several operators is the one that acts.
	operatorLease = "klusterlet-lock"
	// envOperatorImage is the image that the operator itself runs from, which has the agents.
	envOperatorImage = "OPERATOR_IMAGE"
	// defaultImage is where releases are.
	defaultImage = "ghcr.io/capstan-io/capstan-agent:"

	flagNodeSelector = "control-plane-node-label-selector"
	flagReplicas     = "deployment-replicas"
)

type operatorFlags struct {
	kubeconfig      string
	install         klusterlet.Options
	nodeSelector    string
	withoutElection bool
	listenAddress   string
	tls             secureserving.TLSFlags
	accepted        ignoredflags.Flags
}

func newOperatorCommand() *cobra.Command {
	flags := operatorFlags{listenAddress: ":8443", install: klusterlet.Options{
		Namespace: program.Namespace(fleet.NamespaceOperators), Version: program.Version(), Image: os.Getenv(envOperatorImage),
		AWSCLIImage: klusterlet.DefaultAWSCLIImage}}
	command := &cobra.Command{
		Use:   "operator",
		Short: "Install agents into Kubernetes clusters as Klusterlets describe them",
		Long: `Install agents into Kubernetes clusters as Klusterlets describe them.

The operator makes the Deployments and permissions of agents in the cluster that it runs in.
For a Klusterlet with the mode Hosted or SingletonHosted, the agent runs there, too, and
manages another cluster. What is changed or deleted by others is restored at once.`,
		Example: `  capstan-agent operator --kubeconfig ~/.kube/config`,
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return flags.run(command.Context()) },
	}
	flags.add(command.Flags())
	return command
}

func (f *operatorFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig, "kubeconfig of the cluster of the operator (default in-cluster)")
	flags.StringVar(&f.install.Namespace, "namespace", f.install.Namespace, "namespace of the operator, where its Lease, the Secret "+
		fleet.SecretImagePullCredentials+" and the ConfigMap "+fleet.ConfigMapTLSProfile+" are")
	flags.StringVar(&f.nodeSelector, flagNodeSelector, f.nodeSelector,
		"label selector of the nodes that count for the number of replicas (default all nodes that agents can run on)")
	flags.Int32Var(&f.install.Replicas, flagReplicas, f.install.Replicas,
		"replicas of each agent that is not hosted; 0 means one for each node that it can run on, three at most")
	flags.BoolVar(&f.install.WithoutAddOnNamespace, "disable-default-addon-namespace", f.install.WithoutAddOnNamespace,
		"do not create the namespace "+fleet.NamespaceAgentAddOn)
	flags.BoolVar(&f.install.SyncLabels, "enable-sync-labels", f.install.SyncLabels, "copy the labels of a Klusterlet to what it consists of")
	flags.StringVar(&f.install.AWSCLIImage, "aws-cli-image", f.install.AWSCLIImage, "image with the AWS command line, for agents that register by AWS IAM, "+
		"such as one of another registry; empty to have none, as agents of this project can do without")
	flags.BoolVar(&f.withoutElection, "disable-leader-election", f.withoutElection, "act without a Lease, even if other operators run")
	secureserving.AddFlag(flags, &f.listenAddress)
	f.tls.Add(flags)
	f.accepted.Add(flags, "skip-placeholder-hub-secret", ignoredflags.Switch, "no Secret is created before the agent registers")
	f.accepted.AddLimits(flags, "kube-api-qps", "kube-api-burst")
}

func (f *operatorFlags) run(ctx context.Context) error {
	f.accepted.Log(log.FromContext(ctx))
	if err := f.complete(); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig %q: %w; name a kubeconfig file", f.kubeconfig, err)
	}
	config.QPS = -1 // the priority and fairness of the API server is the limit
	config.UserAgent = "capstan-klusterlet-operator"
	options := klusterlet.ManagerOptions(f.install.Namespace)
	options.Metrics.BindAddress = secureserving.None // they are served with the health
	if !f.withoutElection {
		options.LeaderElection, options.LeaderElectionID, options.LeaderElectionNamespace = true, operatorLease, f.install.Namespace
		options.LeaderElectionReleaseOnCancel = true
	}
	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		return fmt.Errorf("prepare the operator: %w", err)
	}
	if err := klusterlet.Register(ctx, manager, f.install); err != nil {
		return err
	}
	if err := f.serve(manager); err != nil {
		return err
	}
	return manager.Start(ctx)
}

// serve has the manager serve health and metrics.
func (f *operatorFlags) serve(manager ctrl.Manager) error {
	if f.listenAddress == secureserving.None {
		return nil
	}
	bounds, err := f.tls.Apply()
	if err != nil {
		return err
	}
	ping := map[string]healthz.Checker{"ping": healthz.Ping}
	server, err := secureserving.New(
		secureserving.Options{Address: f.listenAddress, Health: ping, Ready: ping, API: manager.GetConfig(), TLS: bounds},
	)
	if err != nil {
		return err
	}
	return manager.Add(server)
}

// complete refuses what makes no sense.
func (f *operatorFlags) complete() (err error) {
	if f.install.Image == "" {
		f.install.Image = defaultImage + f.install.Version
	}
	if f.install.Replicas < 0 {
		return fmt.Errorf("--%s is %d; it must be 0, to choose by the number of nodes, or more", flagReplicas, f.install.Replicas)
	}
	if f.nodeSelector == "" {
		return nil
	}
	if f.install.Nodes, err = labels.Parse(f.nodeSelector); err != nil {
		return fmt.Errorf(
			"--%s is %q: %w; it must be a label selector, such as node-role.kubernetes.io/control-plane",
			flagNodeSelector,
			f.nodeSelector,
			err,
		)
	}
	return nil
}
