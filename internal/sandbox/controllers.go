package sandbox

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/controlplane/apiserverconfig"
	"github.com/capstan-io/capstan/internal/controlplane/kubecontrollers"
	"github.com/capstan-io/capstan/internal/controlplane/pki"
	"github.com/capstan-io/capstan/internal/sandbox/nodesim"
)

// startPoll is how often a start looks whether what it waits for is there. It
// reads memory or the loopback, and stops with the start.
const startPoll = 5 * time.Millisecond

// controllers is everything that runs on the API server, prepared to be started.
type controllers struct {
	cluster *Cluster
	shared  coreinformers.Interface
	admin   kubernetes.Interface
	run     func() // until cancel is called
	cancel  context.CancelFunc
}

func (c *Cluster) prepareControllers(ctx context.Context, loopback *rest.Config, keys *clusterKeys) (*controllers, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.onStop(func() error {
		cancel()
		return nil
	})
	signingCert, signingKey := keys.CA(pki.ClientCA)
	set, err := kubecontrollers.New(life, kubecontrollers.Config{
		Client:             as(loopback, "kube-controller-manager"),
		SigningCertFile:    signingCert,
		SigningKeyFile:     signingKey,
		ServiceAccountKeys: keys.tokens,
		RootCAFile:         keys.Bundle(pki.RootCA),
		Workloads:          true,
	})
	if err != nil {
		return nil, err
	}
	if err := addWorkloads(life, as(loopback, "kube-controller-manager"), set.Informers(), set.Add); err != nil {
		return nil, err
	}
	if err := addScheduler(life, as(loopback, "kube-scheduler"), set.Informers(), set.Add); err != nil {
		return nil, err
	}
	if err := addNodes(as(loopback, "kubelet"), c.options.Nodes, set.Informers(), set.Add); err != nil {
		return nil, err
	}
	set.Add(func(ctx context.Context) { keys.Run(ctx, func() { c.refreshKeys(ctx, keys) }) })
	admin, err := kubernetes.NewForConfig(as(loopback, "capstan-sandbox"))
	if err != nil {
		return nil, err
	}
	return &controllers{
		cluster: c,
		shared:  set.Informers().Core().V1(),
		admin:   admin,
		run:     func() { set.Run(life) },
		cancel:  cancel,
	}, nil
}

// as is a copy of loopback for the component of that name, which managed fields
// and events then show, without a throttle: the API server's own is enough.
func as(loopback *rest.Config, component string) *rest.Config {
	config := rest.CopyConfig(loopback)
	config.UserAgent = component
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	return config
}

func addNodes(config *rest.Config, nodes int, shared informers.SharedInformerFactory, add func(func(context.Context))) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	simulator, err := nodesim.New(nodesim.Options{
		Nodes:        nodes,
		Version:      apiserverconfig.KubeVersion(),
		Client:       client,
		PodInformer:  shared.Core().V1().Pods(),
		NodeInformer: shared.Core().V1().Nodes(),
		Clock:        clock.RealClock{},
	})
	if err != nil {
		return err
	}
	add(simulator.Run)
	return nil
}

// start runs the controllers and returns when they have made the cluster usable.
func (c *controllers) start(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		c.run()
		close(done)
	}()
	c.cluster.onStop(func() error {
		c.cancel()
		c.cluster.await(ctx, "controllers", done)
		return nil
	})
	if err := installDefaults(ctx, c.admin); err != nil {
		return err
	}
	if err := until(ctx, c.usable); err != nil {
		return fmt.Errorf("wait for the nodes and the default service account: %w", err)
	}
	return nil
}

// usable says whether all nodes are Ready and pods can be made in namespace
// default.
func (c *controllers) usable(context.Context) (bool, error) {
	if _, err := c.shared.ServiceAccounts().Lister().ServiceAccounts(metav1.NamespaceDefault).Get("default"); err != nil {
		return false, nil //nolint:nilerr // it does not exist yet
	}
	nodes, err := c.shared.Nodes().Lister().List(labels.SelectorFromSet(labels.Set{nodesim.LabelSimulated: "true"}))
	ready := 0
	for _, node := range nodes {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	return ready >= c.cluster.options.Nodes, err
}

func until(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextCancel(ctx, startPoll, true, condition)
}
