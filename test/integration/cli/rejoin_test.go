package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/cli/playground"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// joinCommand is the command that a hub prints now for a cluster.
func joinCommand(t *testing.T, hub *env.Server, cluster string, flags ...string) []string {
	t.Helper()
	var info struct {
		Token  string   `json:"hub-token"`
		Server string   `json:"hub-apiserver"`
		Pins   []string `json:"ca-cert-hash"`
	}
	if err := json.Unmarshal([]byte(hub.Capstan(t, "", "get", "token", "-o", "json").Out), &info); err != nil {
		t.Fatal(err)
	}
	return append([]string{"join", "--hub-token", info.Token, "--hub-apiserver", info.Server, "--ca-cert-hash", strings.Join(info.Pins, ","),
		"--cluster-name", cluster}, flags...)
}

// capstanAt runs the command line of a user whose playground is in a folder.
func capstanAt(t *testing.T, home string, args ...string) {
	t.Helper()
	path, err := env.Binary("capstan")
	if err != nil {
		t.Fatal(err)
	}
	command := env.Command(context.WithoutCancel(t.Context()), path, args...) // also when the test cleans up
	command.Env = env.Environ(playground.EnvHome+"="+home, "KUBECONFIG=")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("capstan %s: %v\n%s", args, err, output)
	}
}

// mount brings the bootstrap kubeconfig that "join" has put into a cluster to its agent, as a kubelet does.
func mount(t *testing.T, cluster *env.Server, agent *env.Agent) {
	t.Helper()
	secret := &corev1.Secret{}
	framework.Get(t, cluster.Client(t), client.ObjectKey{Namespace: fleet.NamespaceAgent, Name: fleet.SecretBootstrapHubKubeconfig}, secret)
	env.ReplaceFile(t, agent.Bootstrap, secret.Data[fleet.KeyKubeconfig])
}

// nameIn is who the agent with a folder is.
func nameIn(t *testing.T, folder string) string {
	t.Helper()
	name, err := os.ReadFile(filepath.Join(folder, fleet.KeyAgentName))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(name))
}

// undecidedRequest is a request of a cluster that nobody has decided on; empty if there is none.
func undecidedRequest(t *testing.T, hub *env.Server, cluster string) string {
	t.Helper()
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := hub.Client(t).List(t.Context(), list, client.MatchingLabels{fleet.LabelClusterName: cluster}); err != nil {
		t.Fatal(err)
	}
	for _, csr := range list.Items {
		if len(csr.Status.Conditions) == 0 {
			return csr.Name
		}
	}
	return ""
}

// applied has a work make a ConfigMap of its name on the cluster, and returns the UID of that.
func applied(t *testing.T, hub, cluster *env.Server, of, name string) types.UID {
	t.Helper()
	work := framework.Work(of, name, framework.ConfigMap("default", name, "applied"))
	framework.Create(t, hub.Client(t), work)
	framework.AwaitCondition(t, hub.Client(t), work, fleet.ConditionApplied, metav1.ConditionTrue)
	return framework.AwaitConfigMap(t, cluster.Client(t), "default", name, "applied").UID
}

// R4 CA-17: a hub that has lost its keys, and has others now, gets each agent back by the command that it prints, run again: for an agent
// in the cluster, and for one in the background of a machine. The agent is not restarted, keeps its name, and what it has applied stays.
func TestJoinAgainAfterTheCAChanged(t *testing.T) {
	t.Parallel()
	hub, cluster := env.StartHub(t, ""), env.StartSandbox(t)
	const local, inCluster = "joins-again-locally", "joins-again-in-cluster"
	home := filepath.Join(t.TempDir(), "home")
	t.Cleanup(func() { capstanAt(t, home, "down", "--purge") })
	agent := env.NewAgent(t, hub, cluster, inCluster, "")
	join := func() {
		capstanAt(t, home, joinCommand(t, hub, local, "--local", "--managed-cluster-kubeconfig", cluster.Kubeconfig, "--detach", "--wait")...)
		cluster.Capstan(t, "", joinCommand(t, hub, inCluster)...).Succeeds(t)
		mount(t, cluster, agent)
	}
	join()
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	pid := agent.Pid()
	before := map[string]types.UID{}
	for _, name := range []string{local, inCluster} {
		env.Accept(t, hub.Client(t), name)
		env.AwaitAvailable(t, hub.Client(t), name)
		before[name] = applied(t, hub, cluster, name, name)
	}

	if err := hub.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(hub.Dir, "data", "cert")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(hub.Dir, "data", "new-keys"), nil, 0o600); err != nil { // as the hub asks for then
		t.Fatal(err)
	}
	if err := hub.Start(); err != nil {
		t.Fatal(err)
	}
	if err := hub.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	join()
	for name, folder := range map[string]string{local: filepath.Join(home, "clusters", local, "agent"), inCluster: agent.HubDir} {
		var request string
		env.Eventually(t, func(context.Context) error {
			if request = undecidedRequest(t, hub, name); request == "" {
				return fmt.Errorf("cluster %s has not asked again", name)
			}
			return nil
		})
		agentName := fleet.ClusterUser(name, nameIn(t, folder))
		refused := hub.Capstan(t, "", "accept", "--clusters", name, "--requesters", agentName)
		if refused.Code == 0 || !strings.Contains(refused.ErrOut, agentName+" (CSR "+request) {
			t.Errorf("accepted by the name of the agent, with %d: %s", refused.Code, refused.ErrOut)
		}
		hub.Capstan(t, "", "accept", "--clusters", name, "--requesters", request).Succeeds(t)
		applied(t, hub, cluster, name, name+"-after-the-change")
		if now := framework.AwaitConfigMap(t, cluster.Client(t), "default", name, "applied"); now.UID != before[name] {
			t.Errorf("what the agent of %s had applied is another object now", name)
		}
	}
	if agent.Pid() != pid {
		t.Error("the agent was restarted")
	}
}
