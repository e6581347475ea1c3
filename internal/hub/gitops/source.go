package gitops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/capstan-io/capstan/api/apps/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/accessprovider"
)

// Keys of the Secrets by which an Argo CD knows clusters.
const (
	keyName   = "name"
	keyServer = "server"
	keyConfig = "config"
)

// hostOfHub and nameOfHub are those by which an Argo CD knows the cluster that it is on.
const (
	hostOfHub = "kubernetes.default.svc"
	nameOfHub = "in-cluster"
)

// entry is what a Secret says about a cluster.
type entry struct {
	// secret is the name of the Secret.
	secret string
	server string
	config []byte
	// copied is true for the content of a Secret that somebody else keeps.
	copied bool
}

// clusterConfig is what an Argo CD connects with: ClusterConfig of its API, without programs that it starts to get a credential.
type clusterConfig struct {
	Username           string    `json:"username,omitempty"`
	Password           string    `json:"password,omitempty"`
	BearerToken        string    `json:"bearerToken,omitempty"`
	TLS                tlsConfig `json:"tlsClientConfig"`
	DisableCompression bool      `json:"disableCompression,omitempty"`
	ProxyURL           string    `json:"proxyUrl,omitempty"`
}

// encode returns what a Secret has.
func (c clusterConfig) encode() ([]byte, error) {
	return json.Marshal(c) //nolint:gosec // it goes into a Secret
}

type tlsConfig struct {
	Insecure   bool   `json:"insecure"`
	ServerName string `json:"serverName,omitempty"`
	CertData   []byte `json:"certData,omitempty"`
	KeyData    []byte `json:"keyData,omitempty"`
	CAData     []byte `json:"caData,omitempty"`
}

// copiedConfig is a clusterConfig of somebody else, and what that must not have.
type copiedConfig struct {
	clusterConfig
	Exec *struct{} `json:"execProviderConfig"`
	AWS  *struct{} `json:"awsAuthConfig"`
}

// accountOf is the name of the ManagedServiceAccounts whose tokens a GitOpsCluster presents.
func accountOf(g *appsv1beta1.GitOpsCluster) string {
	if named := g.Spec.ManagedServiceAccountRef; named != "" {
		return named
	}
	return fleet.ManagedServiceAccountArgo
}

func isBlank(g *appsv1beta1.GitOpsCluster) bool {
	return g.Spec.CreateBlankClusterSecrets != nil && *g.Spec.CreateBlankClusterSecrets
}

// secretOf is the name of the Secret of a cluster for the token of an account.
func secretOf(cluster, account string) string { return cluster + "-" + account + "-cluster-secret" }

// sourceOf is the name of the Secret of a cluster, in its namespace on the hub, that is copied, and of the copy.
func sourceOf(cluster string) string { return cluster + "-cluster-secret" }

// names are those that the Secret of a cluster may have.
func names(g *appsv1beta1.GitOpsCluster, cluster string) []string {
	all := []string{secretOf(cluster, accountOf(g))}
	if g.Spec.ManagedServiceAccountRef == "" && !isBlank(g) {
		all = append(all, sourceOf(cluster))
	}
	return all
}

// entry returns what the Secret of a cluster has to say.
func (c *Controller) entry(ctx context.Context, g *appsv1beta1.GitOpsCluster, cluster *clusterv1.ManagedCluster) (*entry, error) {
	if cluster.Name == nameOfHub {
		return nil, obstacle(reasonTaken, "an Argo CD knows the cluster that it is on by the name %s", nameOfHub)
	}
	if isBlank(g) {
		return &entry{secret: secretOf(cluster.Name, accountOf(g)), server: "https://" + cluster.Name + "-control-plane"}, nil
	}
	account := client.ObjectKey{Namespace: cluster.Name, Name: accountOf(g)}
	token := &corev1.Secret{}
	err := c.c.Tokens.Get(ctx, account, token)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("get Secret %s: %w", account, err)
	case err == nil && len(token.Data[corev1.ServiceAccountTokenKey]) > 0:
		return c.fromToken(ctx, cluster, token)
	case g.Spec.ManagedServiceAccountRef != "":
		return nil, obstacle(reasonNoCredential, "there is no token of ManagedServiceAccount %s; create that, and enable the add-on %s on the "+
			"cluster", account, fleet.AddOnManagedServiceAccount)
	}
	return c.fromCopy(ctx, cluster.Name)
}

// fromToken has the token of an account, and the endpoint of its cluster.
func (c *Controller) fromToken(ctx context.Context, cluster *clusterv1.ManagedCluster, token *corev1.Secret) (*entry, error) {
	server, ca, err := c.endpointOf(ctx, cluster, token.Data[corev1.ServiceAccountRootCAKey])
	if err != nil {
		return nil, err
	}
	config, err := clusterConfig{BearerToken: string(token.Data[corev1.ServiceAccountTokenKey]), TLS: tlsConfig{CAData: ca}}.encode()
	return &entry{secret: secretOf(cluster.Name, token.Name), server: server, config: config}, err
}

// endpointOf is where the API server of a cluster is reached, and the CA that verifies it: through the hub, where that has a tunnel to the
// cluster.
func (c *Controller) endpointOf(ctx context.Context, cluster *clusterv1.ManagedCluster,
	ca []byte) (server string, verify []byte, err error) {
	tunnel, err := accessprovider.IsReached(ctx, c.c, cluster)
	if err != nil {
		return "", nil, err
	}
	if tunnel {
		address, verify, ok := c.Access.Address.Get()
		if !ok {
			return "", nil, obstacle(reasonNotReached, "the hub does not know its own address yet")
		}
		return c.Access.Server(address, cluster.Name), verify, nil
	}
	for _, direct := range cluster.Spec.ManagedClusterClientConfigs {
		parsed, err := url.Parse(direct.URL)
		if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.Hostname() == hostOfHub {
			continue
		}
		if len(direct.CABundle) > 0 {
			ca = direct.CABundle
		}
		return strings.TrimRight(direct.URL, "/"), ca, nil
	}
	return "", nil, obstacle(reasonNotReached, "no way to the cluster is known; enable the add-on %s on it, or set an https:// URL in "+
		"spec.managedClusterClientConfigs of the ManagedCluster", fleet.AddOnClusterProxy)
}

// fromCopy has the content of a Secret that somebody else keeps for the cluster. Who writes Secrets in the namespace of a cluster may have
// an Argo CD connect to that cluster, and no more.
func (c *Controller) fromCopy(ctx context.Context, cluster string) (*entry, error) {
	key := client.ObjectKey{Namespace: cluster, Name: sourceOf(cluster)}
	source := &corev1.Secret{}
	if err := c.c.Live.Get(ctx, key, source); apierrors.IsNotFound(err) {
		return nil, obstacle(reasonNoCredential, "there is neither a token of ManagedServiceAccount %s/%s nor a Secret %s; create one of them, "+
			"or set spec.managedServiceAccountRef", cluster, fleet.ManagedServiceAccountArgo, key)
	} else if err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", key, err)
	}
	for _, needed := range []string{keyServer, keyConfig} {
		if len(source.Data[needed]) == 0 {
			return nil, obstacle(reasonNoCredential, "Secret %s has no %s; it needs %s and %s, as Argo CD has them", key, needed, keyServer,
				keyConfig)
		}
	}
	server := strings.TrimRight(string(source.Data[keyServer]), "/") // an Argo CD takes both for the same
	if parsed, err := url.Parse(server); err != nil || parsed.Hostname() == "" || parsed.Hostname() == hostOfHub {
		return nil, obstacle(reasonRefused, "%s of Secret %s is not the URL of a cluster, such as https://cluster.example.com:6443",
			keyServer, key)
	}
	config, err := copyOf(source.Data[keyConfig])
	if err != nil {
		return nil, obstacle(reasonRefused, "%s of Secret %s %v", keyConfig, key, err)
	}
	return &entry{secret: source.Name, server: server, config: config, copied: true}, nil
}

// copyOf is a config as it was understood: an Argo CD that cannot read one makes no Applications for any cluster, and one that is to get a
// credential by a program runs that next to its own.
func copyOf(config []byte) ([]byte, error) {
	read := copiedConfig{}
	if err := json.Unmarshal(config, &read); err != nil {
		return nil, errors.New("is not JSON as Argo CD has it, with bearerToken and tlsClientConfig") // err may quote a credential
	}
	if read.Exec != nil || read.AWS != nil {
		return nil, errors.New("has execProviderConfig or awsAuthConfig, which are not copied: Argo CD would run a program for it; put a " +
			"token or a certificate there, or make the Secret in the namespace of Argo CD yourself")
	}
	return read.encode()
}
