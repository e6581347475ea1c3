// Package kubeconfigsecret reads the kubeconfigs that users store in Secrets: those of the other clusters of hosted hubs and agents, and of
// clusters that the hub imports.
package kubeconfigsecret

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy/proxyurl"
)

// Config is the access to the cluster that the Secret's kubeconfig leads to. Files that it refers to are keys of the Secret.
func Config(secret *corev1.Secret) (*rest.Config, error) {
	return ConfigOf(secret, fleet.KeyKubeconfig)
}

// ConfigOf is the same for a kubeconfig that the Secret has under another key.
func ConfigOf(secret *corev1.Secret, key string) (*rest.Config, error) {
	content := secret.Data[key]
	if len(content) == 0 {
		return nil, fmt.Errorf("secret %s/%s has no key %s; store a kubeconfig of the cluster under it", secret.Namespace, secret.Name, key)
	}
	kubeconfig, err := clientcmd.Load(content)
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: its %s is no kubeconfig: %w", secret.Namespace, secret.Name, key, err)
	}
	if err := Inline(kubeconfig, secret.Data); err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	config.QPS = -1 // the priority and fairness of the API server is the limit
	return config, nil
}

// Inline replaces the references to files by the content of the keys with these names; space around a token is left out, as clients do
// that read it from a file. A kubeconfig must not read files of the operator or run programs in its pod.
func Inline(kubeconfig *clientcmdapi.Config, files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(kubeconfig.AuthInfos)) {
		user := kubeconfig.AuthInfos[name]
		if program := programOf(user); program != "" {
			return fmt.Errorf("its kubeconfig runs a program to get a credential for user %q: %s; use a certificate or a token", name, program)
		}
		if user.TokenFile != "" {
			token, found := files[user.TokenFile]
			if !found {
				return missing(user.TokenFile)
			}
			user.Token, user.TokenFile = strings.TrimSpace(string(token)), ""
		}
		for _, reference := range []struct {
			file *string
			data *[]byte
		}{{&user.ClientCertificate, &user.ClientCertificateData}, {&user.ClientKey, &user.ClientKeyData}} {
			if err := replace(reference.file, reference.data, files); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kubeconfig.Clusters)) {
		cluster := kubeconfig.Clusters[name]
		if _, ok := proxyurl.Parse(cluster.ProxyURL); cluster.ProxyURL != "" && !ok { // clients would say the whole of it
			return fmt.Errorf("its kubeconfig has a proxy-url for cluster %q that is no URL of a proxy; use one with %s, such as "+
				"http://proxy.example.com:3128, with %% in a password written as %%25", name, strings.Join(proxyurl.Schemes, ", "))
		}
		if err := replace(&cluster.CertificateAuthority, &cluster.CertificateAuthorityData, files); err != nil {
			return err
		}
	}
	return nil
}

// programOf is what a user of a kubeconfig gets the credential from, empty if the kubeconfig has it.
func programOf(user *clientcmdapi.AuthInfo) string {
	switch {
	case user.Exec != nil:
		return "exec " + user.Exec.Command
	case user.AuthProvider != nil:
		return "auth-provider " + user.AuthProvider.Name
	}
	return ""
}

func replace(file *string, data *[]byte, files map[string][]byte) error {
	if *file == "" {
		return nil
	}
	content, found := files[*file]
	if !found {
		return missing(*file)
	}
	*data, *file = content, ""
	return nil
}

func missing(file string) error {
	return fmt.Errorf("its kubeconfig refers to the file %s, which is no key of the Secret; add it, or write its content into the kubeconfig", file)
}
