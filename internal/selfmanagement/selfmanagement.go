// Package selfmanagement has a hub manage the cluster that it runs in, or beside: an agent of that cluster runs in the process of the hub.
// The agent registers as any does, and works under a certificate of its own; what an administrator does for other clusters, the hub does
// for this one.
package selfmanagement

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent"
	"github.com/capstan-io/capstan/internal/leaderelection"
	"github.com/capstan-io/capstan/internal/machinery/consistentclient"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	// agentName begins the ID of the agent.
	agentName = "self-management"

	// Where one of several replicas of a hub is elected to run the agent.
	leaseNamespace = "kube-system"
	leaseName      = "capstan-hub-self-management"
)

// Options say which cluster a hub manages itself.
type Options struct {
	// Managed is the access of an administrator to the cluster; nil switches self-management off.
	Managed *rest.Config
	// ClusterName is the name of the cluster on the hub; empty means an ID of the cluster.
	ClusterName string
	// HubKubeconfig is a file with the access of an administrator to the hub, by a URL that no other hub of the cluster has.
	HubKubeconfig string
	// Dir is the folder for the agent's own access.
	Dir string
}

// Run manages the cluster until ctx ends. hub has all rights. When several hubs share their objects, elect is set, and one of them manages.
// ManagedClusters from when self-management was on, or had another name, are deleted unless something would have to be removed from the
// cluster. If there are none and self-management is off, Run returns at once.
func Run(ctx context.Context, hub *rest.Config, elect bool, o Options) error {
	direct, err := client.New(hub, client.Options{Scheme: newScheme()})
	if err != nil {
		return fmt.Errorf("self-management: %w", err)
	}
	s := &self{Options: o, direct: direct, clock: clock.RealClock{}, ready: make(chan struct{})}
	find := s.findManaged
	if o.Managed != nil {
		cluster, err := dynamic.NewForConfig(o.Managed)
		if err != nil {
			return fmt.Errorf("self-management: reach the cluster: %w", err)
		}
		find = func(ctx context.Context) error { return s.identify(ctx, cluster) }
	}
	if !persist(ctx, find) || o.Managed == nil && !s.managed {
		return nil
	}
	options := managerOptions(s.name)
	if elect {
		if err := leaderelection.ForManager(&options, hub, leaseNamespace, leaseName); err != nil {
			return fmt.Errorf("prepare self-management: %w", err)
		}
	}
	manager, err := ctrl.NewManager(hub, options)
	if err != nil {
		return fmt.Errorf("prepare self-management: %w", err)
	}
	if err := s.register(manager); err != nil {
		return fmt.Errorf("prepare self-management: %w", err)
	}
	return manager.Start(ctx)
}

// retryInterval is the pause before what self-management needs to begin is tried again.
const retryInterval = 5 * time.Second

// persist attempts something until it succeeds, which it reports, or the context ends. Nothing that fails on the way ends the hub.
func persist(ctx context.Context, attempt func(context.Context) error) (succeeded bool) {
	err := wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (bool, error) {
		err := attempt(ctx)
		if err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Self-management does not begin yet; that is tried again", "after", retryInterval.String())
		}
		return err == nil, nil
	})
	return err == nil
}

// findManaged finds out whether there are clusters from when self-management was on.
func (s *self) findManaged(ctx context.Context) error {
	left := &clusterv1.ManagedClusterList{}
	if err := s.direct.List(ctx, left, client.HasLabels{fleet.LabelSelfManagement}); err != nil {
		return fmt.Errorf("list the clusters from when it was on: %w", err)
	}
	s.managed = len(left.Items) > 0
	return nil
}

// self is the cluster that the hub manages itself.
type self struct {
	Options
	// managed tells, while self-management is off, whether there are clusters from when it was on.
	managed bool
	// name is that of the cluster, and agent the ID of its agent.
	name, agent string
	// client reads from caches, direct does not.
	client, direct client.Client
	clock          clock.PassiveClock
	// ready is closed when there is a ManagedCluster for the agent.
	ready chan struct{}
	// logged are the clusters that were logged as left behind.
	logged map[string]bool
}

func managerOptions(name string) ctrl.Options {
	labelled, err := labels.NewRequirement(fleet.LabelSelfManagement, selection.Exists, nil)
	utilruntime.Must(err)
	return ctrl.Options{
		Scheme:    newScheme(),
		Metrics:   metricsserver.Options{BindAddress: "0"}, // the API server of the process has them
		NewClient: consistentclient.NewClient,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&clusterv1.ManagedCluster{}:                 {Label: labels.NewSelector().Add(*labelled)},
				&certificatesv1.CertificateSigningRequest{}: {Label: labels.SelectorFromSet(labels.Set{fleet.LabelClusterName: name})},
			},
		},
	}
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, certificatesv1.AddToScheme, coordinationv1.AddToScheme, clusterv1.AddToScheme, workv1.AddToScheme,
		addonv1beta1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

func (s *self) register(manager ctrl.Manager) error {
	s.client = manager.GetClient()
	s.logged = map[string]bool{}
	if err := s.registerClusters(manager); err != nil {
		return err
	}
	if s.Managed == nil {
		return nil
	}
	if err := s.registerRequests(manager); err != nil {
		return err
	}
	return manager.Add(agentRunnable(s.runAgent))
}

// agentRunnable runs in one of several replicas.
type agentRunnable func(context.Context) error

// Start implements manager.Runnable.
func (r agentRunnable) Start(ctx context.Context) error { return r(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (agentRunnable) NeedLeaderElection() bool { return true }

// agentRestart is the pause after an agent that could not go on. It has tried again by itself whatever is worth trying sooner.
const agentRestart = 30 * time.Second

// runAgent runs the agent once there is a ManagedCluster for it. Nothing that happens to it ends the hub.
func (s *self) runAgent(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.ready:
	}
	for {
		err := agent.Run(ctx, s.agentOptions(), agent.Parts{Registration: true, Work: true})
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it ends with the hub
		}
		ctrl.LoggerFrom(ctx).Error(err, "The agent of the cluster that the hub manages itself ended, and is started again", "cluster", s.name,
			"after", agentRestart.String())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(agentRestart):
		}
	}
}

func (s *self) agentOptions() *agent.Options {
	o := agent.NewOptions()
	o.BootstrapKubeconfig = s.HubKubeconfig
	o.HubKubeconfigDir = filepath.Join(s.Dir, "hub-kubeconfig")
	o.ManagedCluster = rest.CopyConfig(s.Managed)
	o.ManagedCluster.QPS = -1
	o.ManagedCluster.UserAgent = fleet.AgentUserAgent
	o.ClusterName, o.AgentID = s.name, s.agent
	o.ClusterLabels = map[string]string{fleet.LabelSelfManagement: ""}
	o.SpokeExternalServerURLs = []string{s.Managed.Host}
	return o
}
