package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-io/capstan/internal/gcpacer"
	"github.com/capstan-io/capstan/internal/ignoredflags"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/clustermanager"
	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/secureserving"
)

const (
	// operatorLease is the Lease by which one of several operators is the one that acts.
	operatorLease = "cluster-manager-lock"
	// envOperatorImage is the image that the operator itself runs from, which has all programs of a hub.
	envOperatorImage = "OPERATOR_IMAGE"

	flagNodeSelector = "control-plane-node-label-selector"
	flagReplicas     = "deployment-replicas"
)

type operatorFlags struct {
	kubeconfig      string
	namespace       string
	install         clustermanager.Options
	nodeSelector    string
	withoutElection bool
	metricsAddress  string
	healthAddress   string
	listenAddress   string
	tls             secureserving.TLSFlags
	accepted        ignoredflags.Flags
	logs            logging
}

func newOperatorCommand() *cobra.Command {
	flags := operatorFlags{
		namespace:      program.Namespace(fleet.NamespaceOperators),
		install:        clustermanager.Options{Image: os.Getenv(envOperatorImage), PullSecret: fleet.SecretImagePullCredentials},
		metricsAddress: defaultMetricsAddress, healthAddress: ":8081", listenAddress: secureserving.None, logs: newLogging(),
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
			gcpacer.Pace(processRoom, mostProcessRoom)
			return flags.run(command.Context())
		},
	}
	flags.add(command.Flags())
	return command
}

func (f *operatorFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig, "File with the access to the API (default: that of the pod this runs in).")
	flags.StringVar(&f.namespace, "namespace", f.namespace, "Namespace of the operator, where its Lease, the Secret to pull images with and the ConfigMap "+
		fleet.ConfigMapTLSProfile+" are (default: that of the pod this runs in).")
	flags.StringVar(&f.install.PullSecret, "image-pull-secret-name", f.install.PullSecret,
		"Secret in the namespace of the operator that is copied to where the components of a hub run, to pull their images with.")
	flags.StringVar(&f.nodeSelector, flagNodeSelector, f.nodeSelector,
		"Label selector of the nodes that count for the number of replicas (default: all nodes that the components can run on).")
	flags.Int32Var(&f.install.Replicas, flagReplicas, f.install.Replicas,
		"Replicas of each component; 0 means one for each node that they can run on, three at most.")
	flags.BoolVar(&f.install.SyncLabels, "enable-sync-labels", f.install.SyncLabels,
		"Copy the labels of a ClusterManager to what it consists of.")
	flags.BoolVar(&f.install.SkipRemoveCRDs, "skip-remove-crds", f.install.SkipRemoveCRDs,
		"Leave the CRDs of a hub, and all that is stored of them, when its ClusterManager is deleted.")
	flags.BoolVar(&f.withoutElection, "disable-leader-election", f.withoutElection, "Act without a Lease, even if other operators run.")
	f.accepted.AddLimits(flags, "kube-api-qps", "kube-api-burst")
	addMetricsAddress(flags, &f.metricsAddress)
	flags.StringVar(&f.healthAddress, "health-probe-bind-address", f.healthAddress,
		"Address at which /healthz and /readyz are served; 0 serves none.")
	secureserving.AddFlag(flags, &f.listenAddress)
	f.tls.Add(flags)
	f.logs.addFlags(flags)
}

func (f *operatorFlags) run(ctx context.Context) error {
	if err := f.logs.apply(ctx); err != nil {
		return err
	}
	f.accepted.Log(klog.FromContext(ctx))
	if err := f.complete(); err != nil {
		return err
	}
	config, err := clientConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	bounds, err := f.tls.Apply()
	if err != nil {
		return err
	}
	options := ctrl.Options{Scheme: clustermanager.Scheme(), Cache: clustermanager.CacheOptions(f.namespace),
		HealthProbeBindAddress: f.healthAddress}
	if options.Metrics, err = metricsOptions(f.metricsAddress, bounds); err != nil {
		return err
	}
	if !f.withoutElection {
		options.LeaderElection, options.LeaderElectionID, options.LeaderElectionNamespace = true, operatorLease, f.namespace
		options.LeaderElectionReleaseOnCancel = true
	}
	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		return fmt.Errorf("prepare the operator: %w", err)
	}
	if err := clustermanager.Register(ctx, manager, f.install); err != nil {
		return err
	}
	if err := addHealth(manager, f.listenAddress, bounds); err != nil {
		return err
	}
	return manager.Start(ctx)
}

// complete refuses what makes no sense.
func (f *operatorFlags) complete() (err error) {
	f.install.Namespace, f.install.Version = f.namespace, program.Version()
	if f.install.Replicas < 0 {
		return fmt.Errorf("--%s %d is negative; use 0 to choose by the number of nodes, or a number of replicas", flagReplicas, f.install.Replicas)
	}
	if f.nodeSelector == "" {
		return nil
	}
	if f.install.Nodes, err = labels.Parse(f.nodeSelector); err != nil {
		return fmt.Errorf("--%s: %w; write a label selector, such as node-role.kubernetes.io/control-plane=", flagNodeSelector, err)
	}
	return nil
}
