package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/controlplane/pki"
)

const (
	// adminKubeconfig is the file of the admin's kubeconfig in the certificate folder.
	adminKubeconfig = "kube-aggregator.kubeconfig"
	// inClusterKubeconfig is the same for pods of the hosting cluster.
	inClusterKubeconfig = "incluster.kubeconfig"

	kubeconfigName = "multicluster-controlplane"
	kubeconfigUser = "user"

	// Secrets in the hub's namespace of the hosting cluster, with their key.
	externalKubeconfigSecret  = "multicluster-controlplane-kubeconfig"
	inClusterKubeconfigSecret = "multicluster-controlplane-svc-kubeconfig"
	kubeconfigSecretKey       = "kubeconfig"
)

func certDir(dataDirectory string) string { return filepath.Join(dataDirectory, "cert") }

// AdminKubeconfig is the file with the admin's access to the hub of a data directory.
func AdminKubeconfig(dataDirectory string) string {
	return filepath.Join(certDir(dataDirectory), adminKubeconfig)
}

// credential is what an admin's kubeconfig holds in addition to the URL.
type credential struct {
	ca, cert, key []byte
}

func readCredential(keys *pki.Store) (c credential, err error) {
	certFile, keyFile := keys.Certificate(pki.Admin)
	for file, into := range map[string]*[]byte{keys.Bundle(pki.RootCA): &c.ca, certFile: &c.cert, keyFile: &c.key} {
		if *into, err = os.ReadFile(file); err != nil {
			return credential{}, err
		}
	}
	return c, nil
}

func (c credential) kubeconfig(url string) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[kubeconfigName] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: c.ca}
	config.AuthInfos[kubeconfigUser] = &clientcmdapi.AuthInfo{ClientCertificateData: c.cert, ClientKeyData: c.key}
	config.Contexts[kubeconfigName] = &clientcmdapi.Context{Cluster: kubeconfigName, AuthInfo: kubeconfigUser,
		Namespace: metav1.NamespaceDefault}
	config.CurrentContext = kubeconfigName
	return clientcmd.Write(*config)
}

// writeKubeconfigs writes the admin's kubeconfigs: one as a file, and in a hosting cluster also one for pods and both as
// Secrets. It is called again when certificates were renewed.
func (o *Options) writeKubeconfigs(ctx context.Context, keys *pki.Store, a address) error {
	admin, err := readCredential(keys)
	if err != nil {
		return fmt.Errorf("write the admin kubeconfig: %w", err)
	}
	external, err := admin.kubeconfig(a.url())
	if err != nil {
		return fmt.Errorf("write the admin kubeconfig: %w", err)
	}
	if o.Hosting == nil {
		return writePrivate(AdminKubeconfig(o.Config.DataDirectory), external)
	}
	local, err := admin.kubeconfig(fmt.Sprintf("https://127.0.0.1:%d", a.listen))
	if err != nil {
		return fmt.Errorf("write the admin kubeconfig: %w", err)
	}
	inCluster, err := admin.kubeconfig(fmt.Sprintf("https://%s.%s.svc/", serviceName, o.Hosting.Namespace))
	if err != nil {
		return fmt.Errorf("write the kubeconfig for pods: %w", err)
	}
	if err := writePrivate(AdminKubeconfig(o.Config.DataDirectory), local); err != nil {
		return err
	}
	if err := writePrivate(filepath.Join(certDir(o.Config.DataDirectory), inClusterKubeconfig), inCluster); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(o.Hosting.Client)
	if err != nil {
		return err
	}
	return publishKubeconfigs(ctx, client, o.Hosting.Namespace, map[string][]byte{
		externalKubeconfigSecret:  external,
		inClusterKubeconfigSecret: inCluster,
	})
}

func publishKubeconfigs(ctx context.Context, client kubernetes.Interface, namespace string, kubeconfigs map[string][]byte) error {
	secrets := client.CoreV1().Secrets(namespace)
	for name, content := range kubeconfigs {
		secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{kubeconfigSecretKey: content}}
			_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
		case err == nil && !bytes.Equal(secret.Data[kubeconfigSecretKey], content):
			secret.Data = map[string][]byte{kubeconfigSecretKey: content}
			_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		}
		if err != nil {
			return fmt.Errorf("write Secret %s/%s of the hosting cluster: %w", namespace, name, err)
		}
	}
	return nil
}

// writePrivate replaces a file that only its owner may read, unless it already says the same.
func writePrivate(file string, content []byte) error {
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, content) {
		return nil
	}
	next := file + ".new"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return err
	}
	return os.Rename(next, file)
}
