package install

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/operator/kubeconfigsecret"
)

// nameHosted gives a hosted agent its name, and the namespace of its service accounts on the managed cluster.
func (c *clusterJoin) nameHosted(ctx context.Context, cluster *Cluster, klusterlet map[string]any, server string) error {
	name, err := c.hostedName(ctx, cluster, server)
	klusterlet["name"], klusterlet["namespace"] = name, "open-cluster-management-"+name
	return err
}

// hostedName is the name of the hosted agent that the cluster has for the hub at an address. Without one, it is that of an agent for
// another address, about which checkKlusterlet decides: the hub may have moved. The first agent gets a name that follows from the cluster
// and the hub, so that a run that was interrupted before there was a Klusterlet goes on in the same namespace.
func (c *clusterJoin) hostedName(ctx context.Context, cluster *Cluster, server string) (string, error) {
	hash := fnv.New32a()
	fmt.Fprint(hash, c.cluster, " ", c.invitation.Server)
	name := "klusterlet-hosted-" + rand.SafeEncodeString(fmt.Sprint(hash.Sum32()))
	hubs, err := c.hostedHubs(ctx, cluster)
	if err != nil {
		return "", err
	}
	others, hub := slices.Sorted(maps.Keys(hubs)), apiclient.KnownCluster{Server: server}
	for _, other := range others {
		if hub.IsAt(hubs[other]) {
			return other, nil
		}
	}
	if len(others) == 0 || slices.Contains(others, name) {
		return name, nil
	}
	return others[len(others)-1], nil
}

// hostedHubs are the addresses of the hubs of the cluster's hosted agents, as far as they are known, by the names of these agents.
func (c *clusterJoin) hostedHubs(ctx context.Context, cluster *Cluster) (map[string]string, error) {
	existing, err := cluster.Klusterlets(ctx)
	if err != nil {
		return nil, err
	}
	hubs := map[string]string{}
	for i := range existing {
		if !installation.HasHostedAgent(&existing[i]) {
			continue
		}
		name, err := cluster.knownNameOf(ctx, &existing[i])
		if err != nil {
			return nil, err
		}
		if name != c.cluster {
			continue
		}
		if hubs[existing[i].Name], err = hubOfAgent(ctx, cluster, &existing[i]); err != nil {
			return nil, err
		}
	}
	return hubs, nil
}

// managedCluster is the cluster that a hosted agent is for, and the kubeconfig with which the agent reaches it, as the file has it but for
// other contexts.
func (c *clusterJoin) managedCluster(ctx context.Context) (*hubapi.Hub, string, error) {
	target := hubapi.Target{Kubeconfig: c.managedKubeconfig, Cluster: true}
	config, err := c.kubeconfigForPods(target)
	if err != nil {
		return nil, "", fmt.Errorf("--managed-cluster-kubeconfig: %w", err)
	}
	managed, err := hubapi.Connect(target)
	if err == nil {
		err = managed.Live(ctx)
	}
	if err != nil {
		return nil, "", fmt.Errorf("--managed-cluster-kubeconfig: %w", err)
	}
	if c.internalManaged {
		published, err := managed.Published(ctx)
		if err != nil {
			return nil, "", err
		}
		for _, cluster := range config.Clusters {
			cluster.Server = published.Server
		}
	}
	content, err := clientcmd.Write(*config)
	return managed, string(content), err
}

// kubeconfigForPods is the context of a kubeconfig that leads to a cluster, with the content of the files that it names. One that the
// operator would refuse, as it runs a program of the user, is refused.
func (c *clusterJoin) kubeconfigForPods(target hubapi.Target) (*clientcmdapi.Config, error) {
	config, source, err := target.HubKubeconfig()
	if err != nil {
		return nil, err
	}
	tokens, err := c.readTokens(config)
	if err == nil {
		err = kubeconfigsecret.Inline(config, tokens)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return config, nil
}

// readTokens reads the files with tokens that a kubeconfig names, and says that the agent does not read them again.
func (c *clusterJoin) readTokens(config *clientcmdapi.Config) (map[string][]byte, error) {
	tokens := map[string][]byte{}
	for _, user := range config.AuthInfos {
		if user.TokenFile == "" {
			continue
		}
		content, err := os.ReadFile(user.TokenFile)
		if err != nil {
			return nil, err
		}
		token := bytes.TrimSpace(content)
		if len(token) == 0 {
			return nil, fmt.Errorf("its tokenFile %s is empty: it has to hold a token", user.TokenFile)
		}
		tokens[user.TokenFile] = token
		c.Note("The agent gets the token that %s has now: run this command again before it expires.", user.TokenFile)
	}
	return tokens, nil
}
