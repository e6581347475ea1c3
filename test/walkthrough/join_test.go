package walkthrough

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/realcluster"
)

// A cluster joins with the command that init prints, with an agent of its own in one pod or in several, runs what the hub gives it, and
// leaves without a trace.
//
// CA-15, CA-16, CA-18, CA-19, KL-02, KL-03, KL-32
func TestJoinAndLeave(t *testing.T) {
	t.Parallel()
	clusters := start(t, "hub", "cluster1")
	hub, managed := clusters[0], clusters[1]
	hub.importImages(t, "capstan-hub")
	managed.importImages(t, "capstan-agent")
	initialized := hub.initialize(t)
	hub.joinsAndLeaves(t, initialized, managed, managed, operatorv1.InstallModeDefault, agentPods)
	hub.joinsAndLeaves(t, initialized, managed, managed, operatorv1.InstallModeSingleton, singletonPods, "--singleton")
}

// A cluster joins and leaves as in TestJoinAndLeave while its agent runs in a third one, and also leaves when it cannot be reached any
// more.
//
// CA-17, KL-04, KL-05
func TestJoinAndLeaveHosted(t *testing.T) {
	t.Parallel()
	clusters := start(t, "hub", "cluster1", "hosting")
	hub, managed, hosting := clusters[0], clusters[1], clusters[2]
	hub.importImages(t, "capstan-hub")
	hosting.importImages(t, "capstan-agent")
	initialized := hub.initialize(t)
	flags := []string{"--mode", "hosted", "--managed-cluster-kubeconfig", managed.Kubeconfig}
	singleton := append(slices.Clone(flags), "--singleton")
	hub.joinsAndLeaves(t, initialized, managed, hosting, operatorv1.InstallModeHosted, agentPods, flags...)
	hub.joinsAndLeaves(t, initialized, managed, hosting, operatorv1.InstallModeSingletonHosted, singletonPods, singleton...)
	t.Run("unreachable", func(t *testing.T) { //nolint:paralleltest // they are the same clusters
		before := hosting.Inventory(t)
		hosting.join(t, initialized, "unreachable", append(singleton, "--wait")...)
		leaveUnreachable(t, hosting, "unreachable")
		hosting.AwaitInventory(t, before)
	})
}

// agentPods and singletonPods are the pods of an agent, after the name of its Klusterlet.
var (
	agentPods     = map[string]int{"registration-agent": 1, "work-agent": 1}
	singletonPods = map[string]int{"agent": 1}
)

// joinsAndLeaves makes sure that a cluster joins this hub with an agent that runs in a cluster, which may be another one, that it runs what
// the hub gives it, and that neither cluster has anything left when it is gone.
func (c cluster) joinsAndLeaves(
	t *testing.T, initialized string, managed, at cluster, mode operatorv1.InstallMode, pods map[string]int, flags ...string,
) {
	t.Helper()
	passed := t.Run(string(mode), func(t *testing.T) { //nolint:paralleltest // they are of the same clusters
		name := "cluster-" + strings.ToLower(string(mode))
		before, beforeAt := managed.Inventory(t), at.Inventory(t)
		at.join(t, initialized, name, append(slices.Clone(flags), "--wait")...)
		c.accept(t, name)
		klusterlet := at.klusterlet(t)
		c.createWork(t, managed, name)
		at.awaitAgentUp(t, klusterlet.Name)
		if klusterlet.Spec.DeployOption.Mode != mode {
			t.Errorf("the mode is %s", klusterlet.Spec.DeployOption.Mode)
		}
		if found := at.podNames(t, agentNamespace(klusterlet)); !maps.Equal(found, prefixed(klusterlet.Name+"-", pods)) {
			t.Errorf("the agent has the pods %v", found)
		}

		says(t, at.refused(t, "unjoin", "--cluster-name", name), "hello", "Delete the works on the hub")
		c.deleteWork(t, "hello", name)
		says(t, at.capstan(t, "unjoin", "--cluster-name", name, "--wait"), "The status of mcl "+name+" will be unknown in the hub cluster")
		at.awaitNotServed(t, operatorv1.GroupVersion.WithResource("klusterlets"))
		managed.AwaitInventory(t, before)
		at.AwaitInventory(t, beforeAt)
		c.forget(t, name)
	})
	if !passed {
		t.FailNow()
	}
}

// leaveUnreachable takes a hosted agent away whose managed cluster cannot be reached any more.
func leaveUnreachable(t *testing.T, hosting cluster, name string) {
	t.Helper()
	namespace := hosting.klusterlet(t).Name
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fleet.SecretExternalManagedKubeconfig}}
	if err := hosting.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := clientcmd.Load(secret.Data[fleet.KeyKubeconfig])
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range kubeconfig.Clusters {
		cluster.Server = "https://" + realcluster.HostIP + ":1" // where nothing listens
	}
	if secret.Data[fleet.KeyKubeconfig], err = clientcmd.Write(*kubeconfig); err != nil {
		t.Fatal(err)
	}
	if err := hosting.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	says(t, hosting.refused(t, "unjoin", "--cluster-name", name), "cannot be reached", "--force removes the agent and leaves what it has put there")
	hosting.capstan(t, "unjoin", "--cluster-name", name, "--force")
}

// klusterlet is the one of the cluster.
func (c cluster) klusterlet(t *testing.T) *operatorv1.Klusterlet {
	t.Helper()
	list := &operatorv1.KlusterletList{}
	if err := c.Client.List(t.Context(), list); err != nil || len(list.Items) != 1 {
		t.Fatalf("cluster %s: %d Klusterlets, want 1: %v", c.Name, len(list.Items), err)
	}
	return &list.Items[0]
}

// agentNamespace is where the agent of a Klusterlet runs.
func agentNamespace(k *operatorv1.Klusterlet) string {
	if strings.HasSuffix(string(k.Spec.DeployOption.Mode), string(operatorv1.InstallModeHosted)) {
		return k.Name
	}
	return fleet.NamespaceAgent
}

func prefixed(prefix string, names map[string]int) map[string]int {
	all := map[string]int{}
	for name, count := range names {
		all[prefix+name] = count
	}
	return all
}
