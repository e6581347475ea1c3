package registration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// trustedBy is the CA bundle in the hub kubeconfig of an agent.
func trustedBy(t *testing.T, agent *env.Agent) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(filepath.Join(agent.HubDir, fleet.KeyKubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	return string(config.Clusters["hub"].CertificateAuthorityData)
}

// awaitWorking waits until a work reaches the managed cluster by way of a hub.
func awaitWorking(t *testing.T, c client.Client, cluster, name string) {
	t.Helper()
	w := framework.Work(cluster, name, framework.ConfigMap("default", name, "applied"))
	framework.Create(t, c, w)
	framework.AwaitCondition(t, c, w, fleet.ConditionApplied, metav1.ConditionTrue)
}

// R4 RG-12: a CA that is added to the bootstrap kubeconfig reaches the running agent, which keeps its certificate.
func TestBootstrapCAChanges(t *testing.T) {
	t.Parallel()
	const name = "changed-ca"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	pid, before := agent.Pid(), framework.Certificate(t, agent)
	framework.WithCA(t, agent, framework.AnotherCA(t))
	env.Eventually(t, func(context.Context) error {
		if !strings.HasSuffix(trustedBy(t, agent), string(framework.AnotherCA(t))) {
			return fmt.Errorf("the hub kubeconfig has the old CA")
		}
		return nil
	})
	framework.AwaitLog(t, agent.Process, "Connected to the hub", 2)
	awaitWorking(t, framework.Hub.Client(t), name, "after-the-change")
	if framework.Certificate(t, agent) != before || agent.Pid() != pid || len(framework.Requests(t, name)) != 1 {
		t.Error("the agent registered again")
	}
}

// RG-02: a bootstrap kubeconfig that becomes unusable, or names a hub that cannot be reached, leaves a working agent alone.
func TestBootstrapBreaks(t *testing.T) {
	t.Parallel()
	const name = "broken-bootstrap"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	env.ReplaceFile(t, agent.Bootstrap, []byte("{"))
	awaitWorking(t, framework.Hub.Client(t), name, "with-broken-bootstrap")
	agent.WriteBootstrap(t, framework.Hub, "")
	config, err := clientcmd.LoadFromFile(agent.Bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters["hub"].Server = "https://" + env.FreeAddress(t)
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	env.ReplaceFile(t, agent.Bootstrap, content)
	framework.AwaitLog(t, agent.Process, "cannot be reached as the bootstrap kubeconfig now says", 1)
	awaitWorking(t, framework.Hub.Client(t), name, "with-unreachable-bootstrap")
	if strings.Contains(agent.Log(), "begun a") {
		t.Error("the agent gave up its connection")
	}
}

// R4: when the hub publishes another CA bundle, as it does before it rotates its CA, the agent takes it over.
func TestHubPublishesNextCA(t *testing.T) {
	t.Parallel()
	own := env.StartHub(t, "")
	const name = "next-ca"
	agent := env.Join(t, own, framework.Managed, name)
	c := own.Client(t)
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	info := &corev1.ConfigMap{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "kube-public", Name: "cluster-info"}, info); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load([]byte(info.Data["kubeconfig"]))
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.CertificateAuthorityData = append(cluster.CertificateAuthorityData, framework.AnotherCA(t)...)
	}
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	info.Data["kubeconfig"] = string(content)
	if err := c.Update(t.Context(), info); err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(context.Context) error {
		if !bytes.HasSuffix([]byte(trustedBy(t, agent)), framework.AnotherCA(t)) {
			return fmt.Errorf("the hub kubeconfig has the old CA")
		}
		return nil
	})
	// The bootstrap kubeconfig, which knows nothing of this, does not take it back.
	framework.AwaitLog(t, agent.Process, "Connected to the hub", 3)
	awaitWorking(t, c, name, "after-the-publication")
	if len(framework.RequestsOn(t, c, name)) != 1 {
		t.Error("the agent registered again")
	}
}

// R4 RG-12: a hub that was set up again, with other keys at the same address, gets its agent back with a new bootstrap
// kubeconfig, and without a restart of the agent.
func TestHubSetUpAgain(t *testing.T) {
	t.Parallel()
	own := env.StartHub(t, "")
	const name = "second-life"
	agent := env.Join(t, own, framework.Managed, name)
	pid := agent.Pid()
	if err := own.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(own.Dir, "data")); err != nil {
		t.Fatal(err)
	}
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	if err := own.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	agent.WriteBootstrap(t, own, own.BootstrapToken(t))
	env.Accept(t, own.Client(t), name)
	env.AwaitAvailable(t, own.Client(t), name)
	awaitWorking(t, own.Client(t), name, "in-the-second-life")
	if agent.Pid() != pid {
		t.Error("the agent was restarted")
	}
}

// RG-12: a bootstrap kubeconfig that names another hub takes a running agent there, also while the hub that it comes from would
// still have it.
func TestBootstrapNamesAnotherHub(t *testing.T) {
	t.Parallel()
	const name = "moves"
	next := env.StartHub(t, "")
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	pid := agent.Pid()
	agent.WriteBootstrap(t, next, next.BootstrapToken(t))
	env.Accept(t, next.Client(t), name)
	env.AwaitAvailable(t, next.Client(t), name)
	awaitWorking(t, next.Client(t), name, "of-the-next-hub")
	if agent.Pid() != pid {
		t.Error("the agent was restarted")
	}
}

// RG-54 R13 KL-17: an agent with two hubs works with the first, turns to the second when the first denies its cluster, and back
// when the second is gone.
func TestSwitchesHubs(t *testing.T) {
	t.Parallel()
	const name = "two-hubs"
	first, second := env.StartHub(t, ""), env.StartHub(t, "")
	other := env.NewAgent(t, second, framework.Managed, name, "") // for its bootstrap kubeconfig
	ns := framework.Namespace(t, framework.Managed.Client(t), "two-hubs-agent")
	agent := env.NewAgent(t, first, framework.Managed, name, "", "--hub-connection-timeout-seconds", "15", "--namespace", ns)
	agent.AddArgs("--bootstrap-kubeconfigs", agent.Bootstrap+","+other.Bootstrap)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, first.Client(t), name)
	env.AwaitAvailable(t, first.Client(t), name)
	awaitWorking(t, first.Client(t), name, "of-the-first-hub")
	if len(framework.RequestsOn(t, second.Client(t), name)) > 0 {
		t.Error("the agent registered with both hubs")
	}

	accept := func(c client.Client, accepted bool) {
		t.Helper()
		mc := &clusterv1.ManagedCluster{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, mc); err != nil {
			t.Fatal(err)
		}
		before := mc.DeepCopy()
		mc.Spec.HubAcceptsClient = accepted
		if err := c.Patch(t.Context(), mc, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	accept(first.Client(t), false)
	env.Accept(t, second.Client(t), name)
	env.AwaitAvailable(t, second.Client(t), name)
	awaitWorking(t, second.Client(t), name, "of-the-second-hub")

	accept(first.Client(t), true)
	second.Kill()
	env.Eventually(t, func(context.Context) error {
		if n := len(framework.RequestsOn(t, first.Client(t), name)); n < 2 {
			return fmt.Errorf("%d requests on the first hub", n)
		}
		return nil
	})
	env.Accept(t, first.Client(t), name)
	awaitWorking(t, first.Client(t), name, "of-the-first-hub-again")

	// RG-25, and the events of the OCM API: on the managed cluster one can see what happened.
	for _, reason := range []string{fleet.EventNoValidCertificateFound, fleet.EventBootstrapSelected, fleet.EventManagedClusterCreated,
		fleet.EventCSRCreated,
		fleet.EventClientCertificateCreated, fleet.EventHubClientConfigReady, fleet.EventManagedClusterLeaseUpdateStarted} {
		framework.AwaitEvent(t, framework.Managed.Client(t), ns, reason)
	}
	framework.AwaitEvent(t, first.Client(t), name, fleet.EventAvailable)
}

// RG-54 KL-36: agents of several hubs next to one cluster leave each other alone, also when one of them goes.
func TestTwoAgentsOfOneCluster(t *testing.T) {
	t.Parallel()
	const name = "two-agents"
	other := env.StartHub(t, "")
	agents := map[*env.Server]*env.Agent{framework.Hub: env.Join(t, framework.Hub, framework.Managed, name),
		other: env.Join(t, other, framework.Managed, name)}
	works := map[*env.Server]*workv1.ManifestWork{}
	for h := range agents {
		w := framework.Work(name, "same-name", framework.ConfigMap("default", fmt.Sprintf("of-hub-%t", h == framework.Hub), "applied"))
		framework.Create(t, h.Client(t), w)
		works[h] = w
	}
	for h, w := range works {
		framework.AwaitCondition(t, h.Client(t), w, fleet.ConditionApplied, metav1.ConditionTrue)
	}
	if err := framework.Hub.Client(t).Delete(t.Context(), works[framework.Hub]); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, framework.Hub.Client(t), works[framework.Hub])
	if err := agents[framework.Hub].Stop(); err != nil {
		t.Error(err)
	}
	kept := framework.AwaitConfigMap(t, framework.Managed.Client(t), "default", "of-hub-false", "applied")
	if err := framework.Managed.Client(t).Delete(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	framework.AwaitConfigMap(t, framework.Managed.Client(t), "default", "of-hub-false", "applied")
	env.AwaitAvailable(t, other.Client(t), name)
}
