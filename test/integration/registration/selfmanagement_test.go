package registration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// newSelfManaged lays out a hub beside a cluster that it manages, with these flags, at its address and with its data of before.
func newSelfManaged(t *testing.T, before *env.Server, flags ...string) *env.Server {
	t.Helper()
	dir := before.Dir
	server := &env.Server{Dir: dir, Kubeconfig: before.Kubeconfig, Process: env.NewProgram(t, nil, "capstan-hub",
		append([]string{"server", "--controlplane-config-dir", dir, "--bind-address", "127.0.0.1"}, flags...)...)}
	env.StartServer(t, server)
	return server
}

// SC-02 SC-21: a hub manages the cluster beside it, without another agent: it is there, accepted, after the hub is started, and after
// somebody deletes it. Once self-management is off it goes, when nothing is left to be removed from the cluster.
func TestSelfManagement(t *testing.T) {
	t.Parallel()
	cluster := env.StartSandbox(t)
	system := &corev1.Namespace{}
	framework.Get(t, cluster.Client(t), client.ObjectKey{Name: "kube-system"}, system)
	id := string(system.UID)
	layout, err := env.NewHub(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	on := []string{"--self-management", "--self-management-kubeconfig", cluster.Kubeconfig}
	own := newSelfManaged(t, layout, on...)
	c := own.Client(t)
	env.AwaitAvailable(t, c, id)
	managed := &clusterv1.ManagedCluster{}
	framework.Get(t, c, client.ObjectKey{Name: id}, managed)
	access, err := cluster.Config()
	if err != nil {
		t.Fatal(err)
	}
	if _, labelled := managed.Labels[fleet.LabelSelfManagement]; !labelled || len(managed.Spec.ManagedClusterClientConfigs) != 1 ||
		managed.Spec.ManagedClusterClientConfigs[0].URL != access.Host || len(managed.Spec.ManagedClusterClientConfigs[0].CABundle) == 0 ||
		managed.Status.Capacity.Cpu().IsZero() {
		t.Errorf("the cluster is %+v", managed)
	}
	framework.Create(t, c, framework.Work(id, "hello", framework.ConfigMap("default", "from-the-hub", "hello")))
	framework.AwaitConfigMap(t, cluster.Client(t), "default", "from-the-hub", "hello")

	if err := c.Delete(t.Context(), managed); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, cluster.Client(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "from-the-hub"}})
	env.Eventually(t, func(ctx context.Context) error {
		again := &clusterv1.ManagedCluster{}
		if err := c.Get(ctx, client.ObjectKey{Name: id}, again); err != nil {
			return err
		}
		if again.UID == managed.UID {
			return fmt.Errorf("it is still the one that was deleted")
		}
		return nil
	})
	env.AwaitAvailable(t, c, id)
	framework.Create(t, c, framework.Work(id, "hello", framework.ConfigMap("default", "from-the-hub", "again")))
	applied := framework.AwaitConfigMap(t, cluster.Client(t), "default", "from-the-hub", "again")
	stop(t, own)

	off := newSelfManaged(t, layout)
	env.Eventually(t, func(context.Context) error {
		if !strings.Contains(off.Log(), "Switch self-management on again") {
			return fmt.Errorf("the hub does not say that it does not manage its cluster any more")
		}
		return nil
	})
	framework.Get(t, c, client.ObjectKey{Name: id}, managed)
	stop(t, off)

	named := newSelfManaged(t, layout, append(on, "--self-management-cluster-name", id)...)
	if err := c.Delete(t.Context(), framework.Work(id, "hello")); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, c, framework.Work(id, "hello"))
	framework.AwaitGone(t, cluster.Client(t), applied)
	stop(t, named)
	newSelfManaged(t, layout)
	framework.AwaitGone(t, c, managed)
}

func stop(t *testing.T, server *env.Server) {
	t.Helper()
	if err := server.Stop(); err != nil {
		t.Fatalf("%v\n%s", err, server.Log())
	}
}

// SC-21: a hub does not manage its cluster under the name of another, says so, and goes on.
func TestNameOfAnotherCluster(t *testing.T) {
	t.Parallel()
	layout, err := env.NewHub(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	before := newSelfManaged(t, layout)
	framework.Create(t, before.Client(t), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "another"}})
	stop(t, before)
	own := newSelfManaged(t, layout, "--self-management", "--self-management-kubeconfig", framework.Managed.Kubeconfig,
		"--self-management-cluster-name", "another")
	env.Eventually(t, func(context.Context) error {
		if !strings.Contains(own.Log(), "another cluster has the name") {
			return fmt.Errorf("the hub does not say that the name is taken")
		}
		return nil
	})
	other := &clusterv1.ManagedCluster{}
	framework.Get(t, own.Client(t), client.ObjectKey{Name: "another"}, other)
	if other.Spec.HubAcceptsClient || len(other.Labels[fleet.LabelSelfManagement]) > 0 {
		t.Errorf("the other cluster is changed: %+v", other)
	}
}

// SC-21: a cluster without nodes, as a standalone hub is, is managed as any, and reports no capacity.
func TestClusterWithoutNodes(t *testing.T) {
	t.Parallel()
	bare := env.StartHub(t, "none")
	agent := env.Join(t, framework.Hub, bare, "without-nodes-"+rand.String(5))
	mc := &clusterv1.ManagedCluster{}
	framework.Get(t, framework.Hub.Client(t), client.ObjectKey{Name: agent.Cluster}, mc)
	if len(mc.Status.Capacity) > 0 || len(mc.Status.Allocatable) > 0 {
		t.Errorf("it has a capacity of %v", mc.Status.Capacity)
	}
	framework.Create(t, framework.Hub.Client(t), framework.Work(agent.Cluster, "hello", framework.ConfigMap("default", "hello", "hello")))
	framework.AwaitConfigMap(t, bare.Client(t), "default", "hello", "hello")
}
