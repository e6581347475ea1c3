package sandbox

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/atomicfile"
	"github.com/capstan-io/capstan/internal/controlplane/pki"
	"github.com/capstan-io/capstan/internal/controlplane/serviceaccounttoken"
)

// clusterKeys are the certificates and keys of a cluster, with those of service
// account tokens loaded.
type clusterKeys struct {
	*pki.Store
	tokens *serviceaccounttoken.Keys
}

// openKeys makes or finds the keys of the cluster and writes the kubeconfig.
func (c *Cluster) openKeys(ctx context.Context) (*clusterKeys, error) {
	store, err := pki.Open(ctx, pki.Options{
		Dir: c.path(pkiDir),
		// The last is the address of Service kubernetes.
		ServerNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1", "10.96.0.1"},
	})
	if err != nil {
		return nil, err
	}
	tokens, err := serviceaccounttoken.Load(store.ServiceAccountKeys()) //nolint:contextcheck // keys in memory take no time that could be cut short
	if err != nil {
		return nil, err
	}
	keys := &clusterKeys{Store: store, tokens: tokens}
	return keys, c.writeKubeconfig(keys)
}

// writeKubeconfig writes the administrator's kubeconfig in one step: readers
// get the old file or the new one.
func (c *Cluster) writeKubeconfig(keys *clusterKeys) error {
	kubeconfig, err := c.adminConfig(keys)
	if err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	content, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return atomicfile.Write(c.Kubeconfig(), content, 0o600)
}

func (c *Cluster) adminConfig(keys *clusterKeys) (*clientcmdapi.Config, error) {
	certFile, keyFile := keys.Certificate(pki.Admin)
	ca, err := os.ReadFile(keys.Bundle(pki.RootCA))
	if err != nil {
		return nil, err
	}
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	name := c.options.Name
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.url, CertificateAuthorityData: ca}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return config, nil
}

// refreshKeys follows a renewal of keys and certificates.
func (c *Cluster) refreshKeys(ctx context.Context, keys *clusterKeys) {
	logger := klog.FromContext(ctx)
	if err := keys.tokens.Reload(); err != nil { //nolint:contextcheck // it reads files
		logger.Error(err, "Service account tokens are signed with the old key until the next start")
	}
	if err := c.writeKubeconfig(keys); err != nil {
		logger.Error(err, "The kubeconfig has the old certificate until the next start", "file", c.Kubeconfig())
	}
}
