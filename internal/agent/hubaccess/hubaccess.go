// Package hubaccess has the transports by which an agent reaches a hub: by its API server, or by its gRPC server. Whoever uses the hub need
// not know which one it is. What says where the hub is has the form of a kubeconfig in memory, whatever it is in files.
package hubaccess

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
	"github.com/capstan-io/capstan/internal/machinery/tcp"
)

// Access is a transport to hubs.
type Access struct {
	// Key names the file, and the entry of a Secret, that says where the hub is.
	Key string
	// Signer signs the certificates of agents that use this transport.
	Signer string
	// Brokered says that a broker stands between the agent and the API of the hub: the agent reaches the kinds that the broker has events for,
	// and nothing else.
	Brokered bool
	// Load reads a file of a bootstrap credential. Paths in it are absolute then.
	Load func(file string) (*clientcmdapi.Config, error)
	// Encode makes the file of a credential, whose certificate is in a folder, of a kubeconfig; Decode does the opposite.
	Encode func(kubeconfig []byte, folder string) ([]byte, error)
	Decode func(content []byte) (kubeconfig []byte, err error)
	// Connect returns how clients for a cluster of the hub reach it. They work until the context ends.
	Connect func(ctx context.Context, config *clientcmdapi.Config, cluster string) (*rest.Config, error)
}

// API reaches hubs by their API servers.
var API = &Access{
	Key: fleet.KeyKubeconfig, Signer: fleet.SignerKubeAPIServerClient, Load: loadKubeconfig, Connect: connectToAPI,
	Encode: func(kubeconfig []byte, _ string) ([]byte, error) { return kubeconfig, nil },
	Decode: func(kubeconfig []byte) ([]byte, error) { return kubeconfig, nil },
}

func loadKubeconfig(file string) (*clientcmdapi.Config, error) {
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, err
	}
	return config, clientcmd.ResolveLocalPaths(config)
}

// connectToAPI leaves it to the priority and fairness of the API server how many requests there may be. TLS and proxies are as the
// kubeconfig says. A connection to one of several replicas of a hub ends seconds after that has gone.
func connectToAPI(_ context.Context, config *clientcmdapi.Config, _ string) (*rest.Config, error) {
	reached, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	reached.QPS = -1
	reached.UserAgent = fleet.AgentUserAgent
	if err := forwardproxy.Use(reached); err != nil {
		return nil, err
	}
	(&tcp.Dialer{Probe: true}).Use(reached)
	return reached, nil
}

// current is the cluster and the user of the current context.
func current(config *clientcmdapi.Config) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, error) {
	context := config.Contexts[config.CurrentContext]
	if context == nil || config.Clusters[context.Cluster] == nil {
		return nil, nil, fmt.Errorf("current-context %q names no cluster", config.CurrentContext)
	}
	user := config.AuthInfos[context.AuthInfo]
	if user == nil {
		user = &clientcmdapi.AuthInfo{}
	}
	return config.Clusters[context.Cluster], user, nil
}
