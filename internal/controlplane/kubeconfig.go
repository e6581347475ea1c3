package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/atomicfile"
	"github.com/capstan-io/capstan/internal/controlplane/pki"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

const (
	// adminKubeconfig is the file of the admin's kubeconfig in the certificate folder.
	adminKubeconfig = "kube-aggregator.kubeconfig"
	// inClusterKubeconfig is the same for pods of the hosting cluster.
	inClusterKubeconfig = "incluster.kubeconfig"

	kubeconfigName = "multicluster-controlplane"
	kubeconfigUser = "user"

	// Secrets in the hub's namespace of the hosting cluster, with their keys. The certificate authority is for clients that have a credential
	// of their own, such as Prometheus.
	externalKubeconfigSecret  = "multicluster-controlplane-kubeconfig"
	inClusterKubeconfigSecret = "multicluster-controlplane-svc-kubeconfig"
	kubeconfigSecretKey       = "kubeconfig"
	authoritySecretKey        = "ca.crt"
)

// Administrator is the user of the admin's kubeconfig, by which all hubs on one etcd know each other.
const Administrator = pki.AdminUser

func certDir(dataDirectory string) string { return filepath.Join(dataDirectory, "cert") }

// AdminKubeconfig is the file with the admin's access to the hub of a data directory.
func AdminKubeconfig(dataDirectory string) string {
	return filepath.Join(certDir(dataDirectory), adminKubeconfig)
}

// LocalKubeconfig is the file with the admin's access for what runs beside the hub, by a URL that no other hub of the same cluster has.
func (o *Options) LocalKubeconfig() string {
	if o.Hosting == nil {
		return AdminKubeconfig(o.Config.DataDirectory)
	}
	return filepath.Join(certDir(o.Config.DataDirectory), inClusterKubeconfig)
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
		return atomicfile.WriteSecret(AdminKubeconfig(o.Config.DataDirectory), external)
	}
	local, err := admin.kubeconfig(fmt.Sprintf("https://127.0.0.1:%d", a.listen))
	if err != nil {
		return fmt.Errorf("write the admin kubeconfig: %w", err)
	}
	inCluster, err := admin.kubeconfig(fmt.Sprintf("https://%s.%s.svc/", serviceName, o.Hosting.Namespace))
	if err != nil {
		return fmt.Errorf("write the kubeconfig for pods: %w", err)
	}
	if err := atomicfile.WriteSecret(AdminKubeconfig(o.Config.DataDirectory), local); err != nil {
		return err
	}
	if err := atomicfile.WriteSecret(filepath.Join(certDir(o.Config.DataDirectory), inClusterKubeconfig), inCluster); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(o.Hosting.Client)
	if err != nil {
		return err
	}
	return publishKubeconfigs(ctx, client, o.Hosting.Namespace, map[string]map[string][]byte{
		externalKubeconfigSecret:  {kubeconfigSecretKey: external, authoritySecretKey: admin.ca},
		inClusterKubeconfigSecret: {kubeconfigSecretKey: inCluster, authoritySecretKey: admin.ca},
	})
}

// publishKubeconfigs writes Secrets: their content by their names.
func publishKubeconfigs(ctx context.Context, client kubernetes.Interface, namespace string, contents map[string]map[string][]byte) error {
	owner, err := kubeconfigOwner(ctx, client, namespace)
	if err != nil {
		return err
	}
	for name, content := range contents {
		err := retry.OnRace(func() error {
			return publishKubeconfig(ctx, client.CoreV1().Secrets(namespace), name, content, owner)
		})
		if err != nil {
			return fmt.Errorf("write Secret %s/%s of the hosting cluster: %w", namespace, name, err)
		}
	}
	return nil
}

// kubeconfigOwner is the Service of the hub, if it has one: the Secrets go with it when the hub is uninstalled.
func kubeconfigOwner(ctx context.Context, client kubernetes.Interface, namespace string) ([]metav1.OwnerReference, error) {
	service, err := client.CoreV1().Services(namespace).Get(ctx, serviceName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Service %s/%s of the hosting cluster: %w", namespace, serviceName, err)
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID}}, nil
}

func publishKubeconfig(ctx context.Context, secrets corev1client.SecretInterface, name string, content map[string][]byte,
	owner []metav1.OwnerReference) error {
	secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owner}, Data: content}
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	case err == nil && (!maps.EqualFunc(secret.Data, content, bytes.Equal) ||
		len(owner) > 0 && !equality.Semantic.DeepEqual(secret.OwnerReferences, owner)):
		secret.Data, secret.OwnerReferences = content, owner
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	return err
}
