package hubkubeconfig

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
)

// WithCertificate and WithToken are users of an add-on's kubeconfig, who authenticate with files next to the kubeconfig.
var (
	WithCertificate = clientcmdapi.AuthInfo{ClientCertificate: fleet.KeyTLSCert, ClientKey: fleet.KeyTLSKey}
	WithToken       = clientcmdapi.AuthInfo{TokenFile: fleet.KeyToken}
)

// ForAddOn is a hub kubeconfig for the agent of an add-on: the transport to the hub is the agent's own, proxy and CA
// bundle included.
func (c *Credential) ForAddOn(user clientcmdapi.AuthInfo) ([]byte, error) {
	_, name, hub, err := c.read()
	if err != nil {
		return nil, err
	}
	cluster := hub.DeepCopy()
	cluster.Extensions = nil // they are for the agent alone
	if cluster.CertificateAuthority != "" {
		// The add-on cannot read files of the agent.
		if cluster.CertificateAuthorityData, err = os.ReadFile(cluster.CertificateAuthority); err != nil {
			return nil, fmt.Errorf("read the certificate authority of the hub: %w", err)
		}
		cluster.CertificateAuthority = ""
	}
	// Its clients need not be made with forwardproxy: they verify an HTTPS proxy as they verify the hub.
	cluster.CertificateAuthorityData = forwardproxy.ForBoth(cluster.CertificateAuthorityData)
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{name: cluster},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{fleet.KubeconfigUser: &user},
		Contexts: map[string]*clientcmdapi.Context{fleet.KubeconfigContext: {Cluster: name, AuthInfo: fleet.KubeconfigUser,
			Namespace: fleet.KubeconfigNamespace}},
		CurrentContext: fleet.KubeconfigContext,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the hub kubeconfig of an add-on: %w", err)
	}
	return kubeconfig, nil
}
