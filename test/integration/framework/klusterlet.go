package framework

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KubeconfigOfAccount is a kubeconfig of a service account.
func KubeconfigOfAccount(ctx context.Context, c client.Client, config *rest.Config, account *corev1.ServiceAccount) ([]byte, error) {
	request := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, err
	}
	return KubeconfigWith(config, clientcmdapi.AuthInfo{Token: request.Status.Token})
}

// KubeconfigWith is a kubeconfig of a server with another credential.
func KubeconfigWith(config *rest.Config, credential clientcmdapi.AuthInfo) ([]byte, error) {
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": &credential},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "c",
	})
}
