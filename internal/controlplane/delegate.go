package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	controlplaneoptions "k8s.io/kubernetes/pkg/controlplane/apiserver/options"
)

const (
	// delegationTTL is for how long the hosting cluster's word about a token holds (SC-15).
	delegationTTL = 10 * time.Second

	// Where a cluster says which CA signs its clients.
	authenticationNamespace = "kube-system"
	authenticationConfigMap = "extension-apiserver-authentication"
	clientCAKey             = "client-ca-file"

	// tokenReviews is where a cluster takes token reviews.
	tokenReviews = "/apis/authentication.k8s.io/v1/tokenreviews"
)

// delegateAuthentication lets the users of the hosting cluster in: their tokens are shown to it, their certificates are
// held against its client CA (SC-15). They have no rights on the hub but those granted here.
func (h *hub) delegateAuthentication(ctx context.Context, k *controlplaneoptions.Options) error {
	if !h.DelegatingAuthentication {
		return nil
	}
	if h.Hosting == nil {
		klog.FromContext(ctx).Info("--delegating-authentication has no effect: this hub does not run in a cluster")
		h.DelegatingAuthentication = false
		return nil
	}
	file := filepath.Join(certDir(h.Config.DataDirectory), "delegation.kubeconfig")
	if err := h.Hosting.writeReviewKubeconfig(file); err != nil {
		return fmt.Errorf("delegate authentication: %w", err)
	}
	k.Authentication.WebHook.ConfigFile = file
	k.Authentication.WebHook.Version = "v1"
	k.Authentication.WebHook.CacheTTL = delegationTTL

	client, err := kubernetes.NewForConfig(h.Hosting.Client)
	if err != nil {
		return fmt.Errorf("delegate authentication: %w", err)
	}
	theirs, err := dynamiccertificates.NewDynamicCAFromConfigMapController("hosting-cluster-client-ca", authenticationNamespace, authenticationConfigMap, clientCAKey, client)
	if err != nil {
		return fmt.Errorf("delegate authentication: %w", err)
	}
	ours, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-bundle", k.Authentication.ClientCert.ClientCA)
	if err != nil {
		return fmt.Errorf("delegate authentication: %w", err)
	}
	k.Authentication.ClientCert.CAContentProvider = dynamiccertificates.NewUnionCAContentProvider(ours, theirs)
	return nil
}

// writeReviewKubeconfig writes how to reach the hosting cluster for token reviews. The token stays where the cluster
// rotates it.
func (h *Hosting) writeReviewKubeconfig(file string) error {
	const name = "hosting"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server:               strings.TrimSuffix(h.Client.Host, "/") + tokenReviews,
		CertificateAuthority: h.Client.CAFile, CertificateAuthorityData: h.Client.CAData,
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: h.Client.BearerTokenFile}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return writePrivate(file, content)
}

// The signer of OpenShift's load balancer certificates, which its clients already trust, and the folder it is copied to
// (SC-06).
const (
	signerNamespace = "openshift-kube-apiserver-operator"
	signerSecret    = "loadbalancer-serving-signer"
	signerDir       = "controlplane-ca"
)

// copySigner makes the signer of a hosting OpenShift the root CA of the hub. On other clusters, or when the hub may not
// read it, it names no files and the hub makes a root of its own.
func (h *Hosting) copySigner(ctx context.Context, certDir string) (certFile, keyFile string, err error) {
	client, err := kubernetes.NewForConfig(h.Client)
	if err != nil {
		return "", "", err
	}
	dir := filepath.Join(certDir, signerDir)
	certFile, keyFile = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	secret, err := client.CoreV1().Secrets(signerNamespace).Get(ctx, signerSecret, metav1.GetOptions{})
	if err != nil {
		if _, statErr := os.Stat(certFile); statErr == nil {
			// It was there at an earlier start: the hub keeps its identity.
			return certFile, keyFile, nil
		}
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return "", "", nil
		}
		return "", "", fmt.Errorf("look for the signer of a hosting OpenShift: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	return certFile, keyFile, errors.Join(
		writePrivate(keyFile, secret.Data[corev1.TLSPrivateKeyKey]),
		writePrivate(certFile, secret.Data[corev1.TLSCertKey]))
}
