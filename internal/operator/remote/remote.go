// Package remote keeps the connections of an operator to the clusters that Secrets with kubeconfigs lead to: those of hosted installations.
package remote

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/operator/kubeconfigsecret"
)

// How long a cluster may take to answer the first request, and to list the objects of its installation.
const (
	versionTimeout = 10 * time.Second
	listTimeout    = 30 * time.Second
)

// Clusters are the clusters of the installations that are hosted, one each.
type Clusters struct {
	ctx     context.Context //nolint:containedctx // of the operator: a connection outlives the reconcile that makes it
	options apply.Options

	mu          sync.Mutex
	connections map[string]connection
}

type connection struct {
	secret  map[string][]byte // the data
	config  *rest.Config
	cluster *apply.Cluster
	close   context.CancelFunc
	// ended is why the watches ended.
	ended <-chan error
}

// New returns Clusters without a connection. Connections end with the context, that of the operator.
func New(ctx context.Context, options apply.Options) *Clusters {
	return &Clusters{ctx: ctx, options: options, connections: map[string]connection{}}
}

// Connect returns the cluster of the installation, whose objects are known then, and how it is reached. The Secret has a kubeconfig;
// another one than before makes a new connection. The context bounds how long that takes.
func (c *Clusters) Connect(ctx context.Context, installation string, secret *corev1.Secret) (*apply.Cluster, *rest.Config, error) {
	c.mu.Lock()
	existing, found := c.connections[installation]
	c.mu.Unlock()
	if found && maps.EqualFunc(existing.secret, secret.Data, bytes.Equal) {
		return existing.cluster, existing.config, nil
	}
	c.Disconnect(installation)
	config, err := kubeconfigsecret.Config(secret)
	if err != nil {
		return nil, nil, err
	}
	made, err := c.connect(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	made.secret = maps.Clone(secret.Data)
	c.mu.Lock()
	c.connections[installation] = made
	c.mu.Unlock()
	go c.removeEnded(installation, made)
	return made.cluster, config, nil
}

// removeEnded removes a connection whose watches end by themselves, because more may be watched now: the next reconcile makes another.
func (c *Clusters) removeEnded(installation string, made connection) {
	if err := <-made.ended; err == nil {
		return
	}
	c.mu.Lock()
	if c.connections[installation].cluster == made.cluster {
		delete(c.connections, installation)
	}
	c.mu.Unlock()
	made.close()
	c.options.Changed(installation)
}

// MissingRules are those of [apply.Cluster.MissingRules] for the cluster of the installation; none if there is no connection.
func (c *Clusters) MissingRules(installation string) []string {
	c.mu.Lock()
	connection, found := c.connections[installation]
	c.mu.Unlock()
	if !found {
		return nil
	}
	return connection.cluster.MissingRules()
}

// Disconnect ends the connection to the cluster of the installation, if there is one.
func (c *Clusters) Disconnect(installation string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if connection, found := c.connections[installation]; found {
		connection.close()
		delete(c.connections, installation)
	}
}

func (c *Clusters) connect(ctx context.Context, config *rest.Config) (connection, error) { //nolint:contextcheck // see Clusters.ctx
	if err := checkVersion(config); err != nil {
		return connection{}, fmt.Errorf("the cluster at %s cannot be used: %w", config.Host, err)
	}
	cluster, err := apply.NewCluster(config, c.options)
	if err != nil {
		return connection{}, err
	}
	running, stop := context.WithCancel(c.ctx)
	ended := make(chan error, 1)
	go func() { ended <- cluster.Start(running) }()
	listed, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if !cluster.WaitForCacheSync(listed) {
		stop()
		if err := <-ended; err != nil {
			return connection{}, err
		}
		return connection{}, fmt.Errorf("the cluster at %s did not list what is installed there in %s: see whether the kubeconfig has the right to",
			config.Host, listTimeout)
	}
	return connection{config: config, cluster: cluster, close: stop, ended: ended}, nil
}

// checkVersion requests the version: the response says at once what is wrong with an address or a credential.
func checkVersion(config *rest.Config) error {
	bounded := rest.CopyConfig(config)
	bounded.Timeout = versionTimeout
	client, err := discovery.NewDiscoveryClientForConfig(bounded)
	if err != nil {
		return err
	}
	_, err = client.ServerVersion()
	return err
}
