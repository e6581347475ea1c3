// Package sandbox runs a throw-away Kubernetes cluster in one process: the full
// kube-apiserver on an embedded etcd, the workload controllers, the scheduler,
// and simulated nodes.
//
// It is for playgrounds and tests. Containers do not execute: the nodes report
// the status a kubelet would (see package nodesim), and logs, exec, attach and
// port-forward fail with a message that says so. There are no volumes, load
// balancers, network policies or metrics.
//
// What is written survives a restart on the same directory, keys and identity
// included, but the database does not wait for the disk: a crash of the machine
// (not of the process) may lose or break it.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/controlplane/datadir"
	"github.com/capstan-io/capstan/internal/controlplane/etcd"
)

// walSize is what etcd allocates at a time for its log; a sandbox writes little.
const walSize = 8 << 20

// stopTimeout is how long the controllers, and then the API server, may take to stop.
const stopTimeout = 10 * time.Second

// Cluster is a running sandbox. Get one from Start, and Stop it.
type Cluster struct {
	options Options
	url     string
	ready   atomic.Bool
	undo    []func() error // stops what runs, in the order it was started

	stop    sync.Once
	stopErr error
	ended   chan struct{}
	endErr  error
}

// Start runs a sandbox and returns when it is ready: every controller is
// started, every node is Ready, and namespace default takes pods. ctx bounds the
// start and carries the logger; after that only Stop ends the cluster.
//
// It fails, naming the cause and the way out, when an option is wrong, the data
// directory is in use or that of something else, or the port is taken.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	c := &Cluster{options: o, ended: make(chan struct{})}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(c.causeOf(err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := checkDir(c.options.DataDir); err != nil {
		return err
	}
	lock, err := datadir.Acquire(c.options.DataDir)
	if err != nil {
		return err
	}
	c.onStop(lock.Release)
	listener, err := listen(c.options.DataDir, c.options.Port)
	if err != nil {
		return err
	}
	c.onStop(func() error {
		_ = listener.Close() // the API server closed it already, if it got that far
		return nil
	})
	c.url = "https://" + listener.Addr().String()
	keys, err := c.openKeys(ctx)
	if err != nil {
		return err
	}
	database, err := c.startDatabase(ctx)
	if err != nil {
		return err
	}
	server, err := c.startServer(ctx, listener, database, keys)
	if err != nil {
		return fmt.Errorf("start the API server: %w", err)
	}
	ctx, release := c.whileUp(ctx)
	defer release()
	// Controllers are prepared while the API server comes up.
	controllers, err := c.prepareControllers(ctx, server.loopback, keys)
	if err != nil {
		return err
	}
	if err := server.serving(ctx); err != nil {
		return fmt.Errorf("start the API server: %w", err)
	}
	if err := controllers.start(ctx); err != nil {
		return err
	}
	c.ready.Store(true)
	return nil
}

func (c *Cluster) startDatabase(ctx context.Context) (*etcd.Server, error) {
	database, err := etcd.Start(ctx, etcd.Options{
		Dir:          c.path(etcdDir),
		NoFsync:      true,
		WALSizeBytes: walSize,
		Logger:       klog.FromContext(ctx),
	})
	if err != nil {
		return nil, err
	}
	c.onStop(func() error {
		database.Close()
		return nil
	})
	return database, nil
}

func (c *Cluster) startServer(ctx context.Context, listener net.Listener, database *etcd.Server, keys *clusterKeys) (*apiServer, error) {
	server, err := startAPIServer(ctx, listener, database.Endpoint(), keys, c.readiness)
	if err != nil {
		return nil, err
	}
	c.follow(ctx, server, database.Err())
	return server, nil
}

// follow has the cluster end with its API server, or when its database fails, and the API server with the cluster.
func (c *Cluster) follow(ctx context.Context, server *apiServer, failed <-chan error) {
	go func() {
		defer close(c.ended)
		select {
		case <-server.done:
			c.endErr = server.err
		case err := <-failed:
			c.endErr = fmt.Errorf("etcd failed: %w", err)
		}
	}()
	c.onStop(func() error {
		up, release := c.whileUp(context.WithoutCancel(ctx))
		defer release()
		server.stop(up)
		c.await(ctx, "API server", c.ended)
		return nil
	})
}

// whileUp is a context that ends with ctx, and when the API server has ended or the database has failed.
func (c *Cluster) whileUp(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	select {
	case <-c.ended:
		cancel()
		return ctx, cancel
	default:
	}
	go func() {
		select {
		case <-c.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// causeOf is why the API server or the database ended while the cluster started, if one did, or else err.
func (c *Cluster) causeOf(err error) error {
	select {
	case <-c.ended:
		return fmt.Errorf("start the cluster: %w", cmp.Or(c.endErr, err))
	default:
		return err
	}
}

// await waits for a part that is to stop. What takes too long is left behind, as is what was in flight when the database
// failed, which cannot end well any more: both end with the process.
func (c *Cluster) await(ctx context.Context, part string, done <-chan struct{}) {
	select {
	case <-done:
	case <-c.ended:
	case <-time.After(stopTimeout):
		klog.FromContext(ctx).Error(nil, "A part does not stop; stopping without it", "part", part, "after", stopTimeout)
	}
}

// readiness is what /readyz says about everything but the API server.
func (c *Cluster) readiness() error {
	if !c.ready.Load() {
		return errors.New("controllers or nodes are not ready")
	}
	return nil
}

func (c *Cluster) onStop(undo func() error) { c.undo = append(c.undo, undo) }

// Stop ends the cluster and returns when everything has stopped, or takes too long
// for that. Its data stays. More calls do nothing.
func (c *Cluster) Stop() error {
	c.stop.Do(func() {
		c.ready.Store(false)
		for _, undo := range slices.Backward(c.undo) {
			c.stopErr = errors.Join(c.stopErr, undo())
		}
	})
	return c.stopErr
}

// Ended is closed when the API server has ended: by Stop, or because it or the
// database failed, which Err then tells.
func (c *Cluster) Ended() <-chan struct{} { return c.ended }

// Err is why the API server ended by itself, once Ended is closed.
func (c *Cluster) Err() error { return c.endErr }

// URL is where the API is served, like https://127.0.0.1:6443.
func (c *Cluster) URL() string { return c.url }

// Kubeconfig is the file with the administrator's credentials, readable for its
// owner only. Its one context has the name of the cluster.
func (c *Cluster) Kubeconfig() string { return c.path(kubeconfigFile) }

func (c *Cluster) path(name string) string { return filepath.Join(c.options.DataDir, name) }
