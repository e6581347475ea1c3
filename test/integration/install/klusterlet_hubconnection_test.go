package install

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy/proxytest"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// KL-31: an agent loses its way to the hub while its operator keeps its own. The Klusterlet has the error of the agent, with the next
// heartbeat and after a restart of the agent, and neither log is silent. When the way is back, all is well again.
func TestKlusterletAgentLosesTheHub(t *testing.T) {
	t.Parallel()
	const name, refusal = "kl-cut-off", "Service Unavailable"
	cluster, hub := klusterletCluster(t), framework.Hub.Client(t)
	c, namespace := cluster.Client(t), "open-cluster-management-"+name
	bootstrap, hubAddress, between := bootstrapByTwoWays(t, namespace)
	framework.Create(t, c, newKlusterlet(name, operatorv1.InstallModeSingleton))
	awaitKlusterlet(t, c, name, "Applied=True/KlusterletApplied")
	framework.Create(t, c, bootstrap)
	agent := runPod(t, cluster, namespace, name+"-agent", "POD_NAME="+name, "HTTPS_PROXY="+between.URL)
	env.Accept(t, hub, name)
	env.AwaitAvailable(t, hub, name)
	managed := &clusterv1.ManagedCluster{ObjectMeta: named("", name)}
	framework.MergePatch(t, hub, managed, `{"spec":{"leaseDurationSeconds":1}}`)
	framework.AwaitHeartbeats(t, hub, name, 3) // the agent knows of it before it loses the hub
	awaitKlusterlet(t, c, name, "HubConnectionDegraded=False/HubConnectionFunctional")

	cut := func() { between.Refuse(http.StatusServiceUnavailable); between.Cut() }
	isReported := func() {
		t.Helper()
		for _, text := range []string{"The agent does not reach the hub since ", hubAddress} {
			awaitKlusterletMessage(t, c, name, fleet.ConditionHubConnectionDegraded, fleet.ReasonHubUnreachableFromAgent, text)
		}
	}
	isWell := func() {
		t.Helper()
		between.Refuse(0)
		awaitKlusterlet(t, c, name, "HubConnectionDegraded=False/HubConnectionFunctional")
		env.AwaitAvailable(t, hub, name)
	}
	cut()
	isReported()
	framework.AwaitLog(t, agent, refusal, 1)
	awaitLogOfKlusterlet(t, klusterlets.operator, name, "The agent does not reach its hub")
	isWell()
	awaitLogOfKlusterlet(t, klusterlets.operator, name, "The agent reaches its hub again")

	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	cut()
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	isReported()
	isWell()
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	removeKlusterlet(t, c, name)
}

// bootstrapByTwoWays is what an agent registers with. The address of the hub in it leads there directly, but through the proxy for a
// process that has it in HTTPS_PROXY, which is of no effect for the addresses of loopback interfaces.
func bootstrapByTwoWays(t *testing.T, namespace string) (secret *corev1.Secret, address string, between *proxytest.Proxy) {
	t.Helper()
	secret = bootstrapSecret(t, namespace, fleet.SecretBootstrapHubKubeconfig)
	config, err := clientcmd.Load(secret.Data[fleet.KeyKubeconfig])
	if err != nil {
		t.Fatal(err)
	}
	hub := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	direct, err := url.Parse(hub.Server)
	if err != nil {
		t.Fatal(err)
	}
	address = "0.0.0.0:" + direct.Port()
	hub.Server, hub.TLSServerName = "https://"+address, "localhost"
	if secret.Data[fleet.KeyKubeconfig], err = clientcmd.Write(*config); err != nil {
		t.Fatal(err)
	}
	return secret, address, proxytest.Start(t, false, nil, map[string]string{address: direct.Host})
}

// awaitLogOfKlusterlet waits until an operator has written a line about a Klusterlet.
func awaitLogOfKlusterlet(t *testing.T, operator *env.Process, name, text string) {
	t.Helper()
	env.Eventually(t, func(context.Context) error {
		for line := range strings.Lines(operator.Log()) {
			if strings.Contains(line, text) && strings.Contains(line, name) {
				return nil
			}
		}
		return fmt.Errorf("the log does not say %q of Klusterlet %s", text, name)
	})
}
