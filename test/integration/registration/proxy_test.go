package registration

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// RG-10: an agent that can reach its hub through a proxy alone joins, works, and comes back when its connections break or
// the proxy is out of order for a while.
func TestProxy(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]string{
		"proxy-http":          "HTTP/1.1 200 Connection established\r\n\r\n",
		"proxy-https":         "HTTP/1.1 200 Connection established\r\n\r\n",
		"proxy-http-chunked":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"proxy-https-chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			user := url.UserPassword("agent", "s3cr3t")
			between := framework.StartProxy(t, strings.HasPrefix(name, "proxy-https"), user)
			between.Grant(header)
			agent := env.NewAgent(t, framework.Hub, framework.Managed, name, "")
			framework.BehindProxy(t, agent, between.URLFor(user), between.CA())
			if err := agent.Start(); err != nil {
				t.Fatal(err)
			}
			env.Accept(t, framework.Hub.Client(t), name)
			env.AwaitAvailable(t, framework.Hub.Client(t), name)
			expectInherited(t, agent, between.URLFor(user))
			expectNoDirectWay(t, agent)

			first := applied(t, name, "first")
			before := between.Connections()
			between.Cut()
			second := applied(t, name, "second")
			if now := between.Connections(); now == before {
				t.Errorf("there are %d connections, as before they were cut", now)
			}

			between.Refuse(http.StatusServiceUnavailable)
			between.Cut()
			framework.AwaitLog(t, agent.Process, "cannot connect to "+framework.Unreachable+" (503 Service Unavailable)", 1)
			between.Refuse(0)
			applied(t, name, "third")
			for _, w := range []*workv1.ManifestWork{first, second} {
				framework.AwaitCondition(t, framework.Hub.Client(t), w, fleet.ConditionAvailable, "True")
			}
			if strings.Contains(agent.Log(), "s3cr3t") {
				t.Error("the agent logs the password of the proxy")
			}
		})
	}
}

// applied makes a work through which a ConfigMap gets to the cluster.
func applied(t *testing.T, cluster, name string) *workv1.ManifestWork {
	t.Helper()
	w := framework.Work(cluster, cluster+"-"+name, framework.ConfigMap(framework.Namespace(t, framework.Managed.Client(t), cluster), name, "there"))
	framework.Create(t, framework.Hub.Client(t), w)
	framework.AwaitConfigMap(t, framework.Managed.Client(t), cluster, name, "there")
	return framework.AwaitCondition(t, framework.Hub.Client(t), w, fleet.ConditionApplied, "True")
}

func expectInherited(t *testing.T, agent *env.Agent, proxyURL string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(filepath.Join(agent.HubDir, fleet.KeyKubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	got := config.Clusters["hub"]
	if got.ProxyURL != proxyURL || got.Server != "https://"+framework.Unreachable || got.TLSServerName != "localhost" {
		t.Errorf("the hub kubeconfig has server %q, tls-server-name %q and proxy-url %q", got.Server, got.TLSServerName, got.ProxyURL)
	}
}

// expectNoDirectWay makes sure that nothing but the proxy can have led to the hub.
func expectNoDirectWay(t *testing.T, agent *env.Agent) {
	t.Helper()
	config := agent.HubConfig(t)
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	err := env.ClientFor(t, config).List(t.Context(), &clusterv1.ManagedClusterList{})
	if err == nil || !strings.Contains(err.Error(), "hub.invalid") {
		t.Errorf("without the proxy the hub answers: %v", err)
	}
}

// RG-10: an agent that its proxy does not let through says that it is the proxy, why, and what to do.
func TestProxyRefuses(t *testing.T) {
	t.Parallel()
	open, secured := framework.StartProxy(t, false, nil), framework.StartProxy(t, true, nil)
	closed := framework.StartProxy(t, false, url.UserPassword("agent", "right"))
	forbidding := framework.StartProxy(t, false, nil)
	forbidding.Refuse(http.StatusForbidden)
	gone := framework.StartProxy(t, false, nil)
	gone.Close()
	for name, test := range map[string]struct {
		proxyURL string
		want     []string
	}{
		"forbidden":   {forbidding.URL, []string{forbidding.URL, "refuses to connect to " + framework.Unreachable, "403 Forbidden", "allow CONNECT"}},
		"no-password": {closed.URL, []string{closed.URL, "407 Proxy Authentication Required", "put a user and a password into proxy-url"}},
		"wrong-password": {closed.URLFor(url.UserPassword("agent", "wr0ng")),
			[]string{closed.URL, "407 Proxy Authentication Required", "correct them"}},
		"unknown-authority": {secured.URL, []string{secured.URL, "x509", "certificate-authority-data", "--proxy-ca-file"}},
		"gone":              {gone.URL, []string{"reach the proxy " + gone.URL, "connection refused"}},
		"not-tls": {strings.Replace(open.URL, "http:", "https:", 1),
			[]string{"reach the proxy https:", "tls: first record does not look like a TLS handshake"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent := env.NewAgent(t, framework.Hub, framework.Managed, "proxy-"+name, "")
			framework.BehindProxy(t, agent, test.proxyURL, nil)
			if err := agent.Start(); err != nil {
				t.Fatal(err)
			}
			for _, text := range test.want {
				framework.AwaitLog(t, agent.Process, text, 1)
			}
			if strings.Contains(agent.Log(), "wr0ng") {
				t.Error("the agent logs the password of the proxy")
			}
			if _, err := os.Stat(agent.HubDir); err == nil {
				if _, err := os.Stat(filepath.Join(agent.HubDir, fleet.KeyTLSCert)); err == nil {
					t.Error("the agent has a credential")
				}
			}
		})
	}
}

// RG-10: a proxy that comes later is taken up by an agent that waits.
func TestProxyIsAddedLater(t *testing.T) {
	t.Parallel()
	const name = "proxy-later"
	between := framework.StartProxy(t, true, nil)
	agent := env.NewAgent(t, framework.Hub, framework.Managed, name, "")
	framework.BehindProxy(t, agent, "", nil)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitLog(t, agent.Process, "hub.invalid", 1)
	config, err := clientcmd.LoadFromFile(agent.Bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters["hub"].ProxyURL = between.URL
	config.Clusters["hub"].CertificateAuthorityData = append(config.Clusters["hub"].CertificateAuthorityData, between.CA()...)
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	env.ReplaceFile(t, agent.Bootstrap, content)
	env.Accept(t, framework.Hub.Client(t), name)
	env.AwaitAvailable(t, framework.Hub.Client(t), name)
}
