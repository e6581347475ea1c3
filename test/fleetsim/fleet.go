package fleetsim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/agent"
)

// Options say which fleet to simulate.
type Options struct {
	// Hub is the address of the hub and how to verify it.
	Hub *rest.Config
	// Token is a credential to register with.
	Token string
	// Dir is a folder for what agents keep in files.
	Dir string
	// Size is the number of clusters.
	Size int
	// Light has agents that manage nothing in place of the real ones, for fleets of thousands: to the hub they are the same.
	Light bool
	// Logger receives the agents' logs; none by default.
	Logger logr.Logger
}

// Fleet is a number of managed clusters with their agents.
type Fleet []*Member

// New lays out a fleet without starting it. Its clusters are called sim-0, sim-1 and so on.
func New(o Options) (Fleet, error) {
	hub := rest.CopyConfig(o.Hub)
	if err := rest.LoadTLSFiles(hub); err != nil {
		return nil, fmt.Errorf("load the hub's certificate authority: %w", err)
	}
	o.Hub = hub
	var f Fleet
	for i := range o.Size {
		m, err := newMember(fmt.Sprintf("sim-%d", i), o)
		if err != nil {
			return nil, err
		}
		f = append(f, m)
	}
	return f, nil
}

// Start starts the agents.
func (f Fleet) Start() {
	for _, m := range f {
		m.Start()
	}
}

// Stop stops the agents and returns when all have stopped.
func (f Fleet) Stop() error {
	var all errgroup.Group
	for _, m := range f {
		all.Go(m.Stop)
	}
	return all.Wait()
}

// Names of the clusters on the hub.
func (f Fleet) Names() []string {
	names := make([]string, 0, len(f))
	for _, m := range f {
		names = append(names, m.Name)
	}
	return names
}

// Member is a managed cluster with its agent.
type Member struct {
	// Name of the cluster on the hub.
	Name string
	// Cluster is what is managed. It outlives its agent. A light agent has none.
	Cluster *Cluster

	run    func(context.Context) error
	logger logr.Logger
	stop   context.CancelFunc
	done   chan error
}

func newMember(name string, o Options) (*Member, error) {
	dir := filepath.Join(o.Dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "bootstrap.kubeconfig")
	if err := clientcmd.WriteToFile(bootstrapConfig(name, o), kubeconfig); err != nil {
		return nil, fmt.Errorf("write the bootstrap kubeconfig of %s: %w", name, err)
	}
	m := &Member{Name: name, logger: o.Logger.WithValues("cluster", name)}
	hubKubeconfigDir := filepath.Join(dir, "hub-kubeconfig")
	if o.Light {
		l, err := newLight(name, hubKubeconfigDir, kubeconfig)
		if err != nil {
			return nil, err
		}
		m.run = l.run
		return m, nil
	}
	m.Cluster = NewCluster(name)
	options := agent.NewOptions()
	options.BootstrapKubeconfig, options.HubKubeconfigDir = kubeconfig, hubKubeconfigDir
	options.ManagedCluster, options.ClusterName = m.Cluster.Config(), name
	m.run = func(ctx context.Context) error {
		return agent.Run(ctx, options, agent.Parts{Registration: true, Work: true})
	}
	return m, nil
}

// bootstrapConfig is the bootstrap kubeconfig of a cluster. Clients of equal configuration share connections, and agents on
// different clusters have no configuration in common: the explanation above the certificates, which everybody skips, makes
// each one's different.
func bootstrapConfig(name string, o Options) clientcmdapi.Config {
	ca := append([]byte("The hub's certificate authority, for "+name+"\n"), o.Hub.CAData...)
	return clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: o.Hub.Host, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"bootstrap": {Token: o.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"bootstrap": {Cluster: "hub", AuthInfo: "bootstrap"}},
		CurrentContext: "bootstrap",
	}
}

// Start starts the agent, again if it has run before: then with the credential that it has.
func (m *Member) Start() {
	ctx, stop := context.WithCancel(log.IntoContext(context.Background(), m.logger))
	done := make(chan error, 1)
	m.stop, m.done = stop, done
	go func() { done <- m.run(ctx) }()
}

// Stop stops the agent, if it runs, and returns how it ended. To the hub, the cluster is lost.
func (m *Member) Stop() error {
	if m.stop == nil {
		return nil
	}
	m.stop()
	err := <-m.done
	m.stop = nil
	if err != nil {
		return fmt.Errorf("the agent of %s: %w", m.Name, err)
	}
	return nil
}
