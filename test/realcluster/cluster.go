// Package realcluster starts Kubernetes clusters with real pods for tests: with one node or several, on this machine, without Docker. It
// needs root and a few packages of Debian, and the programs that "make build-clusters" builds.
//
// Tests call Start or StartAll. The clusters stop with the test. What a killed test leaves on the machine is removed when the next one
// starts a cluster. From the machine and from the pods of all clusters, the API server of a cluster has the same URL.
package realcluster

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"testing"
	"text/template"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/realcluster/node"
)

// startTimeout is how long a cluster may take to be ready, on a machine that is busy with other tests. Alone it takes ten seconds.
const startTimeout = 5 * time.Minute

// HostIP is the address of this machine for the pods of all clusters.
const HostIP = node.HostIP

// Options of a cluster.
type Options struct {
	// Name of the cluster and of its first node. Clusters of other tests may have the same.
	Name string
	// Workers are the names of further nodes. None has a control plane.
	Workers []string
	// Images are archives to import, as "docker save" writes them. Every cluster has TestImage.
	Images []string
	// Detached clusters run until they are stopped, not only as long as the process that started them.
	Detached bool
}

// Cluster is a Kubernetes cluster.
type Cluster struct {
	Name string
	// URL of the API server, for this machine and for the pods of all clusters.
	URL string
	// Kubeconfig is a file with an administrator's credential.
	Kubeconfig string
	// NodeIP is the address of the first node, where NodePorts are, for this machine and for the pods of all clusters.
	NodeIP string
	// Config has an administrator's credential.
	Config *rest.Config
	// Client is an administrator's. Its scheme has the kinds of Kubernetes and of Capstan; others are read as unstructured.Unstructured.
	Client client.WithWatch
	// Clientset is an administrator's, for what Client cannot do.
	Clientset kubernetes.Interface

	nodes  []*node.Node // the first one has the control plane
	forget func()       // what is shown at the deadline of the test binary
}

// Start starts a cluster for as long as the test runs. It skips the test where clusters are not asked for (StartEnv) or cannot be started.
// If the test fails, it shows what the cluster did.
func Start(t testing.TB, options Options) *Cluster {
	t.Helper()
	return StartAll(t, options)[0]
}

// StartAll starts clusters at the same time, as Start does. It waits until this machine has room for all of them: a test that starts some
// after others could wait for a test that waits for it.
func StartAll(t testing.TB, options ...Options) []*Cluster {
	t.Helper()
	if reason := skipReason(); reason != "" {
		t.Skip(reason)
	}
	nodes, err := allocate(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	clusters := make([]*Cluster, len(options))
	t.Cleanup(func() {
		for _, c := range clusters {
			if c == nil {
				continue
			}
			c.forget()
			if t.Failed() {
				c.report(t)
			}
		}
		if err := stopAll(clusters); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	var group errgroup.Group
	for i, o := range options {
		group.Go(func() (err error) {
			clusters[i], err = up(t.Context(), nodes[i], o.Images)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return clusters
}

func stopAll(clusters []*Cluster) error {
	var group errgroup.Group
	for _, c := range clusters {
		if c != nil {
			group.Go(c.Stop)
		}
	}
	return group.Wait()
}

// Up starts a cluster, as soon as this machine has room for it, and returns when its nodes and its DNS are ready. If it is not detached, it
// ends with this process, which may stop it before.
func Up(ctx context.Context, options Options) (*Cluster, error) {
	if err := Missing(); err != nil {
		return nil, err
	}
	nodes, err := allocate(ctx, options)
	if err != nil {
		return nil, err
	}
	c, err := up(ctx, nodes[0], options.Images)
	if err != nil && c != nil {
		return nil, fmt.Errorf("%w\n%s", err, c.logs())
	}
	return c, err
}

// up returns the cluster also with an error, if there is something to report or to stop.
func up(ctx context.Context, nodes []*node.Node, images []string) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c, err := startNodes(nodes)
	if err != nil {
		return nil, err
	}
	c.forget = env.OnDeadline(func() string { return "cluster " + c.Name + "\n" + c.logs() })
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		group.Go(func() error { return importAll(ctx, n, images) })
	}
	group.Go(func() error { return c.awaitNodes(ctx) })
	if err := group.Wait(); err != nil {
		return c, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	return c, nil
}

// allocate gives each cluster its nodes, which are not started yet.
func allocate(ctx context.Context, options ...Options) ([][]*node.Node, error) {
	hyperkube, err := env.Binary("hyperkube")
	if err != nil {
		return nil, err
	}
	names := make([][]string, len(options))
	for i, o := range options {
		names[i] = append([]string{o.Name}, o.Workers...)
	}
	clusters, err := node.Allocate(ctx, names...)
	for i, nodes := range clusters {
		for _, n := range nodes {
			n.Detached, n.Hyperkube = options[i].Detached, hyperkube
		}
	}
	return clusters, err
}

func startNodes(nodes []*node.Node) (*Cluster, error) {
	runner, err := env.Binary("realcluster")
	for _, n := range nodes {
		if err == nil {
			err = n.Start(runner)
		}
	}
	if err != nil {
		return nil, errors.Join(err, stop(nodes))
	}
	return forNodes(nodes)
}

func forNodes(nodes []*node.Node) (*Cluster, error) {
	first := nodes[0]
	c := &Cluster{Name: first.Name, URL: first.URL(), Kubeconfig: first.Kubeconfig(), NodeIP: first.IP(), nodes: nodes}
	var err error
	c.Config, err = clientcmd.BuildConfigFromFlags("", first.Kubeconfig())
	if err != nil {
		return c, err
	}
	c.Config.QPS = -1 // the API server's priority and fairness is the throttle
	c.Clientset, err = kubernetes.NewForConfig(c.Config)
	if err != nil {
		return c, err
	}
	c.Client, err = client.NewWithWatch(c.Config, client.Options{Scheme: env.Scheme()})
	return c, err
}

func importAll(ctx context.Context, to *node.Node, archives []string) error {
	if err := to.AwaitContainerd(ctx); err != nil {
		return err
	}
	images, err := preloaded()
	if err != nil {
		return err
	}
	if err := to.Import(ctx, bytes.NewReader(images)); err != nil {
		return err
	}
	for _, path := range archives {
		if err := importFile(ctx, to, path); err != nil {
			return err
		}
	}
	return nil
}

func importFile(ctx context.Context, to *node.Node, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := to.Import(ctx, file); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// awaitNodes waits until pods run on all nodes, and find services by their names.
func (c *Cluster) awaitNodes(ctx context.Context) error {
	if err := c.poll(ctx, c.nodesReady); err != nil {
		return err
	}
	manifests, err := c.dnsManifests()
	if err != nil {
		return err
	}
	if err := c.apply(ctx, manifests); err != nil {
		return err
	}
	return c.poll(ctx, func(ctx context.Context) error { return c.available(ctx, "kube-system", "coredns") })
}

// nodesReady tells whether pods can be created: they take nodes and the service account that a controller makes.
func (c *Cluster) nodesReady(ctx context.Context) error {
	for _, n := range c.nodes {
		var registered corev1.Node
		if err := c.Client.Get(ctx, types.NamespacedName{Name: n.Name}, &registered); err != nil {
			return err
		}
		for _, condition := range registered.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
				return fmt.Errorf("node %s is not ready: %s", n.Name, condition.Message)
			}
		}
	}
	return c.Client.Get(ctx, types.NamespacedName{Namespace: "default", Name: "default"}, &corev1.ServiceAccount{})
}

// available tells whether all replicas of a Deployment are available and of its last generation.
func (c *Cluster) available(ctx context.Context, namespace, name string) error {
	var d appsv1.Deployment
	if err := c.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &d); err != nil {
		return err
	}
	desired := int32(1)
	if d.Spec.Replicas != nil {
		desired = *d.Spec.Replicas
	}
	s := d.Status
	if s.ObservedGeneration < d.Generation || s.UpdatedReplicas != desired || s.AvailableReplicas != desired || s.Replicas != desired {
		return fmt.Errorf("deployment %s/%s: %d replicas wanted; there are %d, of them %d updated and %d available",
			namespace, name, desired, s.Replicas, s.UpdatedReplicas, s.AvailableReplicas)
	}
	return nil
}

// poll waits until check returns no error, or the context ends, or a node does.
func (c *Cluster) poll(ctx context.Context, check func(context.Context) error) error {
	var last error
	err := env.Poll(ctx, func(ctx context.Context) (bool, error) {
		for _, n := range c.nodes {
			select {
			case <-n.Ended():
				return false, fmt.Errorf("node %s ended; its log is %s", n.Name, n.Path("log", "node.log"))
			default:
			}
		}
		err := check(ctx)
		if ctx.Err() == nil || last == nil {
			last = err // not that it was cut off, which says nothing
		}
		return err == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}

//go:embed manifests
var manifestFiles embed.FS

func (c *Cluster) dnsManifests() ([]byte, error) {
	t, err := template.ParseFS(manifestFiles, "manifests/coredns.yaml")
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	err = t.Execute(&content, map[string]string{"Image": TestImage, "Hyperkube": node.HyperkubePath, "DNSIP": c.nodes[0].DNSIP()})
	return content.Bytes(), err
}

// Stop ends the cluster and removes all that it has left on the machine. Clusters of tests are stopped with the test; those that Up
// started have to be stopped.
func (c *Cluster) Stop() error { return stop(c.nodes) }

func stop(nodes []*node.Node) error {
	var group errgroup.Group
	for _, n := range nodes {
		group.Go(n.Stop)
	}
	return group.Wait()
}

// Release lets a detached cluster run on when this process ends.
func (c *Cluster) Release() error {
	var failures []error
	for _, n := range c.nodes {
		failures = append(failures, n.Release())
	}
	return errors.Join(failures...)
}
