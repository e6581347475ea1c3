package walkthrough

import (
	"maps"
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

// A cluster joins with the command that init prints, in each mode, runs what the hub gives it, and leaves without a trace. The agents of
// the hosted modes run in the third cluster.
//
// CA-15, CA-16, CA-17, CA-18, CA-19, KL-02, KL-03, KL-04, KL-05, KL-32
func TestJoinAndLeave(t *testing.T) {
	t.Parallel()
	clusters := start(t, "hub", "cluster1", "hosting")
	hub, managed, hosting := clusters[0], clusters[1], clusters[2]
	hub.importImages(t, "capstan-hub")
	managed.importImages(t, "capstan-agent")
	hosting.importImages(t, "capstan-agent")
	initialized := hub.initialize(t)
	hostedFlags := []string{"--mode", "hosted", "--managed-cluster-kubeconfig", managed.Kubeconfig}
	two := map[string]int{"registration-agent": 1, "work-agent": 1}
	one := map[string]int{"agent": 1}
	for _, mode := range []struct {
		name  operatorv1.InstallMode
		flags []string
		pods  map[string]int // after the name of the Klusterlet
		at    cluster
	}{
		{operatorv1.InstallModeDefault, nil, two, managed},
		{operatorv1.InstallModeSingleton, []string{"--singleton"}, one, managed},
		{operatorv1.InstallModeHosted, hostedFlags, two, hosting},
		{operatorv1.InstallModeSingletonHosted, append(hostedFlags, "--singleton"), one, hosting},
	} {
		passed := t.Run(string(mode.name), func(t *testing.T) { //nolint:paralleltest // they are of the same clusters
			name := "cluster-" + strings.ToLower(string(mode.name))
			before, beforeHosting := managed.Inventory(t), hosting.Inventory(t)
			mode.at.join(t, initialized, name, append(mode.flags, "--wait")...)
			hub.accept(t, name)
			klusterlet := mode.at.klusterlet(t)
			hub.createWork(t, managed, name)
			mode.at.awaitAgentUp(t, klusterlet.Name)
			if klusterlet.Spec.DeployOption.Mode != mode.name {
				t.Errorf("the mode is %s", klusterlet.Spec.DeployOption.Mode)
			}
			if pods := mode.at.podNames(t, agentNamespace(klusterlet)); !maps.Equal(pods, prefixed(klusterlet.Name+"-", mode.pods)) {
				t.Errorf("the agent has the pods %v", pods)
			}

			says(t, mode.at.refused(t, "unjoin", "--cluster-name", name), "hello", "Delete the works on the hub")
			hub.capstan(t, "delete", "work", "hello", "--clusters", name, "--timeout", "60")
			says(t, mode.at.capstan(t, "unjoin", "--cluster-name", name, "--wait"), "The status of mcl "+name+" will be unknown in the hub cluster")
			mode.at.awaitNotServed(t, operatorv1.GroupVersion.WithResource("klusterlets"))
			managed.AwaitInventory(t, before)
			hosting.AwaitInventory(t, beforeHosting)
			hub.forget(t, name)
		})
		if !passed {
			t.FailNow()
		}
	}
	t.Run("unreachable", func(t *testing.T) { //nolint:paralleltest // they are the same clusters
		before := hosting.Inventory(t)
		hosting.join(t, initialized, "unreachable", append(hostedFlags, "--singleton", "--wait")...)
		leaveUnreachable(t, hosting, "unreachable")
		hosting.AwaitInventory(t, before)
	})
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
