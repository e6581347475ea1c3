// Package bootstrap registers an agent with its hub: with a credential that may do no more than ask, it makes the
// ManagedCluster and requests the client certificate under which the agent will work.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/fleet"
	"github.com/capstan-io/capstan/internal/tunnel"
)

// The wait between attempts to register doubles from the first to the last.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// Bootstrap registers one agent with one hub.
type Bootstrap struct {
	// Kubeconfig is the file with the bootstrap credential. It is read for every attempt, so a new one is taken up.
	Kubeconfig string
	// Identity is the name under which to register.
	Identity identity.Identity
	// ClientConfigs say how the hub's users may reach the cluster.
	ClientConfigs []clusterv1.ClientConfig
	// Annotations go on the ManagedCluster (RG-05).
	Annotations map[string]string
	// CertificateLifetime asks for a validity of the client certificate; zero leaves it to the hub.
	CertificateLifetime time.Duration
	// Store receives the credential.
	Store *hubkubeconfig.Store
	Clock clock.Clock
}

// Ensure returns once the store holds a valid credential, registering for as long as that takes (RG-02). What stands in
// the way is logged with every attempt. It fails only when the context ends.
func (b *Bootstrap) Ensure(ctx context.Context) error {
	logger := log.FromContext(ctx)
	retry := firstRetry
	for {
		err := b.attempt(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		logger.Error(explain(err, b.Kubeconfig), "Registration failed and is tried again", "after", retry.String())
		timer := b.Clock.NewTimer(retry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
		retry = min(2*retry, lastRetry)
	}
}

// attempt is the table of RG-02: a valid credential is used even when the bootstrap kubeconfig has become unusable.
func (b *Bootstrap) attempt(ctx context.Context) error {
	if err := b.Store.Restore(ctx); err != nil {
		return err
	}
	config, configErr := load(b.Kubeconfig)
	credential, err := b.Store.Load()
	if err != nil {
		return err
	}
	if credential != nil {
		invalid := credential.Valid(config, b.Identity, b.Clock.Now())
		if invalid == nil {
			return nil
		}
		log.FromContext(ctx).Info("The hub credential cannot be used any more; registering again", "reason", invalid.Error())
	}
	if configErr != nil {
		return fmt.Errorf("read the bootstrap kubeconfig: %w", configErr)
	}
	return b.register(ctx, config)
}

func (b *Bootstrap) register(ctx context.Context, config *clientcmdapi.Config) error {
	hubConfig, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("bootstrap kubeconfig %s: %w", b.Kubeconfig, err)
	}
	hubConfig.QPS = -1
	if err := tunnel.Use(hubConfig); err != nil {
		return fmt.Errorf("bootstrap kubeconfig %s: %w", b.Kubeconfig, err)
	}
	hub, err := hubclient.New(hubConfig)
	if err != nil {
		return fmt.Errorf("use the bootstrap kubeconfig: %w", err)
	}
	// The ManagedCluster comes first: a hub that refuses it must not be left with a request at every attempt.
	if err := b.ensureManagedCluster(ctx, hub); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Registering; an administrator of the hub has to accept the cluster", "hub", hubConfig.Host,
		"command", "capstan accept --clusters "+b.Identity.Cluster)
	requester := &clientcert.Requester{Hub: hub, Keys: b.Store, Identity: b.Identity, Lifetime: b.CertificateLifetime}
	certificate, key, err := requester.Request(ctx)
	if err != nil {
		return err
	}
	credential, err := hubkubeconfig.New(config, b.Identity, certificate, key)
	if err != nil {
		return fmt.Errorf("bootstrap kubeconfig %s: %w", b.Kubeconfig, err)
	}
	if err := b.Store.Save(ctx, credential); err != nil {
		return err
	}
	return awaitAccepted(ctx, hub, b.Identity.Cluster)
}

// load reads a kubeconfig with the files it names by their full paths, as the hub kubeconfig made of it will name them.
func load(file string) (*clientcmdapi.Config, error) {
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, err
	}
	return config, clientcmd.ResolveLocalPaths(config)
}

// ensureManagedCluster is RG-05: the agent proposes, it never accepts itself.
func (b *Bootstrap) ensureManagedCluster(ctx context.Context, hub client.Client) error {
	cluster := &clusterv1.ManagedCluster{}
	err := hub.Get(ctx, client.ObjectKey{Name: b.Identity.Cluster}, cluster)
	if err == nil {
		b.warnOfNameClash(ctx, cluster)
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("get ManagedCluster %s: %w", b.Identity.Cluster, err)
	}
	cluster.Name = b.Identity.Cluster
	cluster.Annotations = b.Annotations
	cluster.Spec.ManagedClusterClientConfigs = b.ClientConfigs
	if err := hub.Create(ctx, cluster); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create ManagedCluster %s: %w", b.Identity.Cluster, err)
	}
	return nil
}

// warnOfNameClash speaks up where two clusters may be about to share a name. It may also be the same cluster that has lost
// its credential, so the decision is left to whoever accepts.
func (b *Bootstrap) warnOfNameClash(ctx context.Context, cluster *clusterv1.ManagedCluster) {
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionJoined) {
		return
	}
	log.FromContext(ctx).Info("A cluster of this name has joined the hub before. If it was another one, stop this agent and choose another --cluster-name: "+
		"both would report as the same cluster and apply the same works", "cluster", cluster.Name, "agent", b.Identity.Agent)
}

// explain adds to an error what to do about it.
func explain(err error, kubeconfig string) error {
	var denied *clientcert.DeniedError
	switch {
	case errors.As(err, &denied):
		return fmt.Errorf("%w; if that was a mistake, delete the request on the hub and a new one is made: kubectl delete csr %s", err, denied.Request)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the hub does not accept the bootstrap credential in %s; its token is wrong or has expired: get a new one with «capstan get token» "+
			"on the hub and put it there: %w", kubeconfig, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the bootstrap credential in %s lacks a right on the hub; use one from «capstan get token»: %w", kubeconfig, err)
	}
	return err
}
