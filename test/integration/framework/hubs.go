package framework

import (
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/test/env"
)

// WithCA writes the bootstrap kubeconfig of an agent again, with one more certificate in the CA bundle.
func WithCA(t *testing.T, agent *env.Agent, another []byte) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(agent.Bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters["hub"].CertificateAuthorityData = append(config.Clusters["hub"].CertificateAuthorityData, another...)
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	env.ReplaceFile(t, agent.Bootstrap, content)
}

// AnotherCA is the CA of the managed cluster, which stands for any that the hub might have next.
func AnotherCA(t *testing.T) []byte {
	t.Helper()
	config, err := Managed.Config()
	if err != nil {
		t.Fatal(err)
	}
	return config.CAData
}
