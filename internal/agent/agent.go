// Package agent is what runs in or beside each managed cluster: it registers the cluster with a hub, keeps the hub
// informed of it, and makes it be what the hub's ManifestWorks say.
package agent

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/registration/bootstrap"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
)

// Parts of an agent, which run in one process or in one each.
type Parts struct{ Registration, Work bool }

// Agent is one cluster's agent.
type Agent struct {
	*Options
	parts         Parts
	clock         clock.Clock
	identity      identity.Identity
	managed       *rest.Config
	store         *hubkubeconfig.Store
	clientConfigs []clusterv1.ClientConfig
}

// Run runs the parts of an agent until the context ends. It fails on what only a person can mend: options that make no
// sense, or a managed cluster that cannot be prepared. Trouble with the hub is waited out.
func Run(ctx context.Context, o *Options, parts Parts) error {
	a, err := newAgent(o, parts)
	if err != nil {
		return err
	}
	prepare, prepareCtx := errgroup.WithContext(ctx)
	prepare.Go(func() error { return a.installCRDs(prepareCtx) })
	prepare.Go(func() error { return a.ensureCredential(prepareCtx) })
	if err := prepare.Wait(); err != nil {
		return endedWell(ctx, err)
	}
	for {
		err := a.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		log.FromContext(ctx).Error(err, "The connection to the hub ended; starting over")
		if err := a.ensureCredential(ctx); err != nil {
			return endedWell(ctx, err)
		}
	}
}

// endedWell is nil if it was the context that ended the agent.
func endedWell(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func newAgent(o *Options, parts Parts) (*Agent, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	managed, err := kubeconfig(o.SpokeKubeconfig, "--spoke-kubeconfig")
	if err != nil {
		return nil, err
	}
	a := &Agent{Options: o, parts: parts, clock: clock.RealClock{}, managed: managed}
	if a.identity, err = identity.Resolve(o.ClusterName, o.AgentID, o.HubKubeconfigDir); err != nil {
		return nil, err
	}
	if a.store, err = newStore(o, managed); err != nil {
		return nil, err
	}
	for _, u := range o.SpokeExternalServerURLs {
		a.clientConfigs = append(a.clientConfigs, clusterv1.ClientConfig{URL: u, CABundle: managed.CAData})
	}
	return a, nil
}

// kubeconfig loads a cluster's client configuration. The API server's priority and fairness is the throttle, not the client.
func kubeconfig(file, flag string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		if file == "" {
			return nil, fmt.Errorf("the agent does not run in a cluster, so it has to be told which one to manage: set %s: %w", flag, err)
		}
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	config.QPS = -1
	config.UserAgent = "capstan-agent"
	return config, nil
}

func newStore(o *Options, managed *rest.Config) (*hubkubeconfig.Store, error) {
	store := &hubkubeconfig.Store{Dir: o.HubKubeconfigDir}
	if o.HubKubeconfigSecret == "" {
		return store, nil
	}
	config := managed
	if o.Kubeconfig != "" {
		var err error
		if config, err = kubeconfig(o.Kubeconfig, "--kubeconfig"); err != nil {
			return nil, err
		}
	}
	c, err := client.New(config, client.Options{Scheme: managedScheme()})
	if err != nil {
		return nil, fmt.Errorf("reach the cluster of Secret %s/%s: %w", o.Namespace, o.HubKubeconfigSecret, err)
	}
	store.Client = c
	store.Secret = client.ObjectKey{Namespace: o.Namespace, Name: o.HubKubeconfigSecret}
	return store, nil
}

// ensureCredential returns when the agent can work on the hub. The work agent alone waits for registration to have got it.
func (a *Agent) ensureCredential(ctx context.Context) error {
	if !a.parts.Registration {
		return a.awaitCredential(ctx)
	}
	b := &bootstrap.Bootstrap{
		Kubeconfig: a.BootstrapKubeconfig, Identity: a.identity, ClientConfigs: a.clientConfigs,
		CertificateLifetime: a.certificateLifetime(), Store: a.store, Clock: a.clock,
	}
	return b.Ensure(ctx)
}

// credentialRecheck is how often the work agent alone looks for the credential: it is another process's to write, in a
// place that may be no cluster's.
const credentialRecheck = time.Second

func (a *Agent) awaitCredential(ctx context.Context) error {
	for {
		if err := a.store.Restore(ctx); err != nil {
			return err
		}
		credential, err := a.store.Load()
		if err != nil {
			return err
		}
		if credential != nil && credential.Valid(nil, a.identity, a.clock.Now()) == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.clock.After(credentialRecheck):
		}
	}
}

func (a *Agent) certificateLifetime() time.Duration {
	return time.Duration(a.ClientCertExpirationSeconds) * time.Second
}
