package frame

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/ignoredflags"
	"github.com/capstan-io/capstan/internal/leaderelection"
	"github.com/capstan-io/capstan/internal/logging"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/secureserving"
)

// EnvImage is the variable with the image that an operator itself runs from, which has the components.
const EnvImage = "OPERATOR_IMAGE"

const (
	flagNodeSelector = "control-plane-node-label-selector"
	flagReplicas     = "deployment-replicas"
)

// Flags are those that the commands of the operators have alike.
type Flags struct {
	// Lease is that by which one of several operators is the one that acts.
	Lease string
	// UserAgent is how the operator names itself to the API server; empty for the name of the program.
	UserAgent string
	Accepted  ignoredflags.Flags

	logs logging.Options
	// listenAddress is where health and metrics are served over HTTPS, and the others are where each of them is alone.
	listenAddress, metricsAddress, healthAddress string
	tls                                          secureserving.TLSFlags

	kubeconfig      string
	nodeSelector    string
	withoutElection bool
}

// Add adds the flags, which set the options. kind is that of the custom resources.
func (f *Flags) Add(flags *pflag.FlagSet, o *Options, kind string) {
	o.Namespace, o.Version = program.Namespace(fleet.NamespaceOperators), program.Version()
	flags.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig, "File with the access to the API (default: that of the pod this runs in).")
	flags.StringVar(&o.Namespace, "namespace", o.Namespace, "Namespace of the operator, where its Lease, the Secret to pull images with "+
		"and the ConfigMap "+fleet.ConfigMapTLSProfile+" are (default: that of the pod this runs in).")
	flags.StringVar(&f.nodeSelector, flagNodeSelector, f.nodeSelector,
		"Label selector of the nodes that count for the number of replicas (default: all nodes that the components can run on).")
	flags.Int32Var(&o.Replicas, flagReplicas, o.Replicas,
		"Replicas of each component that is not hosted; 0 means one for each node that they can run on, three at most.")
	flags.BoolVar(&o.SyncLabels, "enable-sync-labels", o.SyncLabels, "Copy the labels of a "+kind+" to what it consists of.")
	flags.BoolVar(&f.withoutElection, "disable-leader-election", f.withoutElection, "Act without a Lease, even if other operators run.")
	f.Accepted.AddLimits(flags, "kube-api-qps", "kube-api-burst")
	f.listenAddress, f.metricsAddress, f.healthAddress = ":8443", secureserving.None, secureserving.None
	secureserving.AddFlag(flags, &f.listenAddress)
	secureserving.AddMetricsFlag(flags, &f.metricsAddress)
	flags.StringVar(&f.healthAddress, "health-probe-bind-address", f.healthAddress,
		"Address at which /healthz and /readyz are served without TLS; "+secureserving.None+" serves none.")
	f.tls.Add(flags)
	f.logs = logging.New()
	f.logs.AddFlags(flags)
}

// Complete refuses what makes no sense.
func (f *Flags) Complete(o *Options) (err error) {
	if o.Replicas < 0 {
		return fmt.Errorf("--%s is %d; it must be 0, to choose by the number of nodes, or more", flagReplicas, o.Replicas)
	}
	if f.nodeSelector == "" {
		return nil
	}
	if o.Nodes, err = labels.Parse(f.nodeSelector); err != nil {
		return fmt.Errorf("--%s is %q: %w; it must be a label selector, such as node-role.kubernetes.io/control-plane=",
			flagNodeSelector, f.nodeSelector, err)
	}
	return nil
}

// reconcileTimeout is how long a reconcile may take. One that waits for what does not come ends with an error that says for what, and is
// tried again. It is enough to store tens of thousands of objects in another version.
const reconcileTimeout = 5 * time.Minute

// Run runs an operator in that namespace whose controllers register adds, until the context ends, which is that of the program.
func (f *Flags) Run(ctx context.Context, namespace string, options ctrl.Options, register func(ctrl.Manager) error) error {
	if err := f.logs.Apply(ctx); err != nil {
		return err
	}
	f.Accepted.Log(log.FromContext(ctx))
	bounds, err := f.tls.Apply()
	if err != nil {
		return err
	}
	options.HealthProbeBindAddress = f.healthAddress
	if options.Metrics, err = secureserving.MetricsOptions(f.metricsAddress, bounds); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig %q: %w; name a kubeconfig file", f.kubeconfig, err)
	}
	config.QPS = -1 // the priority and fairness of the API server is the limit
	config.UserAgent = f.UserAgent
	options.Controller.ReconciliationTimeout = reconcileTimeout
	if !f.withoutElection {
		if err := leaderelection.ForManager(&options, config, namespace, f.Lease); err != nil {
			return err
		}
	}
	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		return fmt.Errorf("prepare the operator: %w", err)
	}
	if err := register(manager); err != nil {
		return err
	}
	if err := secureserving.AddHealth(manager, f.listenAddress, bounds, nil); err != nil {
		return err
	}
	return manager.Start(ctx)
}
