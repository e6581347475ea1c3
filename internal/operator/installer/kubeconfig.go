package installer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// BootstrapKubeconfig is what an agent joins a hub with: cluster hub, user and context bootstrap. Without certificates, in PEM, the hub is
// verified with those of the machine; without a proxy's URL, it is reached without one.
func BootstrapKubeconfig(server string, ca []byte, token, proxy string) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca, ProxyURL: proxy}
	config.AuthInfos["bootstrap"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["bootstrap"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "bootstrap", Namespace: metav1.NamespaceDefault}
	config.CurrentContext = "bootstrap"
	return config
}
