package framework

import (
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/machinery/forwardproxy/proxytest"
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

// Unreachable is an address of the hub that only proxies know: the name exists nowhere (RFC 6761).
const Unreachable = "hub.invalid:6443"

// StartProxy starts a proxy that knows the hub as unreachable.
func StartProxy(t *testing.T, secure bool, user *url.Userinfo) *proxytest.Proxy {
	t.Helper()
	config, err := Hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	return proxytest.Start(t, secure, user, map[string]string{Unreachable: strings.TrimPrefix(config.Host, "https://")})
}

// BehindProxy makes an agent know the hub by an address that does not exist, and the way there by proxyURL and ca.
func BehindProxy(t *testing.T, agent *env.Agent, proxyURL string, ca []byte) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(agent.Bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	cluster := config.Clusters["hub"]
	cluster.Server = "https://" + Unreachable
	cluster.TLSServerName = "localhost" // a name in the hub's certificate, and not in a proxy's
	cluster.ProxyURL = proxyURL
	cluster.CertificateAuthorityData = append(cluster.CertificateAuthorityData, ca...)
	if err := clientcmd.WriteToFile(*config, agent.Bootstrap); err != nil {
		t.Fatal(err)
	}
}
