package framework

import (
	"context"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// KubeconfigOf is a kubeconfig file of a service account of the hub.
func KubeconfigOf(t *testing.T, cluster *env.Server, account string) string {
	t.Helper()
	return KubeconfigIn(t, cluster, fleet.NamespaceHub, account)
}

// KubeconfigIn is a kubeconfig file of a service account.
func KubeconfigIn(t *testing.T, cluster *env.Server, namespace, account string) string {
	t.Helper()
	config, err := cluster.Config()
	if err != nil {
		t.Fatal(err)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"a": {Token: TokenOf(t, cluster, namespace, account)}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "a"}},
		CurrentContext: "c",
	}, file)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// TokenOf is a token of a service account.
func TokenOf(t *testing.T, cluster *env.Server, namespace, account string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	who := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := cluster.Client(t).SubResource("token").Create(t.Context(), who, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

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
