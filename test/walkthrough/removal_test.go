package walkthrough

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// A cluster that still has works leaves its hub. In whatever order what belongs to it is removed, each step ends or says what to do, and
// nothing is left after the last but what works have applied, where that was asked for.
//
// CA-19, CA-20, CM-20, KL-31, KL-32
func TestRemovalInAnyOrder(t *testing.T) {
	t.Parallel()
	clusters := start(t, "hub", "cluster1")
	hub, managed := clusters[0], clusters[1]
	hub.importImages(t, "capstan-hub")
	managed.importImages(t, "capstan-agent")
	beforeHub, before := hub.Inventory(t), managed.Inventory(t)
	var initialized string // what init has said of the hub, until that is removed
	var joined []string    // the clusters of the hub
	cleanHub := func(t *testing.T, flags ...string) {
		t.Helper()
		hub.clean(t, hub, joined, flags...)
		hub.awaitNotServed(t, clusterv1.GroupVersion.WithResource("managedclusters"))
		hub.AwaitInventory(t, beforeHub)
		initialized, joined = "", nil
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello"}}
	for _, order := range []struct {
		name string
		slow bool
		// remove returns what unjoin says of what the work has applied, and leaves; empty if that is gone.
		remove func(t *testing.T, name string) (advice string)
	}{
		{"klusterlet-first", false, func(t *testing.T, name string) string {
			advice := managed.leaveWithoutKlusterlet(t, name)
			hub.forgetWithoutAgent(t, name)
			return advice
		}},
		{"managedcluster-first", false, func(t *testing.T, name string) string {
			hub.forget(t, name)
			managed.AwaitGone(t, pod.DeepCopy())
			managed.keepKlusterlet(t, name)
			managed.capstan(t, "unjoin", "--cluster-name", name, "--wait")
			return ""
		}},
		{"operator-first", false, func(t *testing.T, name string) string {
			managed.deleteDeployment(t, fleet.NamespaceOperators, "klusterlet")
			hub.leaveWithoutOperator(t, managed, name)
			return ""
		}},
		{"agent-namespace-first", true, func(t *testing.T, name string) string {
			managed.loseNamespace(t, fleet.NamespaceAgent)
			says(t, managed.refused(t, "unjoin", "--cluster-name", name), "hello", "--force leaves what they applied")
			advice := managed.output(t, "unjoin", "--cluster-name", name, "--force")
			hub.forgetWithoutAgent(t, name)
			return advice
		}},
		{"hub-unreachable", true, func(t *testing.T, name string) string {
			reconnect := managed.loseHub(t, hub, name)
			advice := managed.leaveWithoutKlusterlet(t, name)
			reconnect()
			hub.forgetWithoutAgent(t, name)
			return advice
		}},
		{"hub-first", false, func(t *testing.T, name string) string {
			says(t, hub.refused(t, "clean"), "these clusters of the hub are available: "+name, "capstan unjoin", "--force")
			// An agent that runs might still see its works deleted, and take off what they have applied.
			managed.deleteDeployment(t, fleet.NamespaceOperators, "klusterlet")
			managed.deleteDeployment(t, fleet.NamespaceAgent, "klusterlet-registration-agent")
			managed.deleteDeployment(t, fleet.NamespaceAgent, "klusterlet-work-agent")
			managed.awaitNoPods(t, fleet.NamespaceAgent, "")
			cleanHub(t, "--force")
			says(t, managed.refused(t, "unjoin", "--cluster-name", name), "hello", "--force leaves what they applied")
			return managed.output(t, "unjoin", "--cluster-name", name, "--force")
		}},
		{"clustermanager-first", true, func(t *testing.T, name string) string {
			hub.kubectl(t, "delete", "clustermanager", "cluster-manager")
			managed.AwaitGone(t, pod.DeepCopy())
			managed.capstan(t, "unjoin", "--cluster-name", name, "--wait")
			cleanHub(t)
			return ""
		}},
		{"operator-namespaces-first", true, func(t *testing.T, name string) string {
			managed.kubectl(t, "delete", "namespace", fleet.NamespaceOperators)
			hub.leaveWithoutOperator(t, managed, name)
			hub.kubectl(t, "delete", "namespace", fleet.NamespaceOperators)
			says(t, hub.interrupted(t, "clustermanagers", "clean"), "open-cluster-management/cluster-manager, does not run",
				"--force does without it")
			cleanHub(t, "--force")
			return ""
		}},
	} {
		passed := t.Run(order.name, func(t *testing.T) { //nolint:paralleltest // they are of the same clusters
			if order.slow {
				slow(t)
			}
			if initialized == "" {
				initialized = hub.initialize(t)
			}
			joined = append(joined, order.name)
			managed.join(t, initialized, order.name)
			hub.accept(t, order.name)
			applied := hub.createWork(t, managed, order.name)
			if advice := order.remove(t, order.name); advice != "" {
				if left := managed.AwaitPod(t, "default", "hello"); left.UID != applied.UID {
					t.Error("the pod of the work has been replaced")
				}
				managed.deleteApplied(t, advice)
				managed.AwaitGone(t, pod.DeepCopy())
				managed.follow(t, advice, "delete crd "+installation.CRDAppliedManifestWorks)
			}
			managed.awaitNotServed(t, operatorv1.GroupVersion.WithResource("klusterlets"))
			managed.AwaitInventory(t, before)
		})
		if !passed {
			t.FailNow()
		}
	}
}

// keepKlusterlet has a finalizer of the user keep the Klusterlet while unjoin waits for that, which says where to look for the reason.
func (c cluster) keepKlusterlet(t *testing.T, name string) {
	t.Helper()
	const kept = "example.com/kept"
	klusterlet := c.klusterlet(t)
	finalizers, err := json.Marshal(append(klusterlet.Finalizers, kept))
	if err != nil {
		t.Fatal(err)
	}
	c.patch(t, klusterlet, `{"metadata": {"finalizers": `+string(finalizers)+`}}`)
	said := c.interrupted(t, "klusterlets", "unjoin", "--cluster-name", name, "--wait")
	says(t, said, kept)
	if log := c.follow(t, said, "--namespace "+fleet.NamespaceOperators+" logs deployment/klusterlet"); log == "" {
		t.Error("the log that unjoin names is empty")
	}
	c.awaitStatus(t, klusterlet.Name, func(k *operatorv1.Klusterlet) error {
		if k.DeletionTimestamp == nil || !slices.Equal(k.Finalizers, []string{kept}) {
			return fmt.Errorf("the Klusterlet is deleted since %v, and has the finalizers %q", k.DeletionTimestamp, k.Finalizers)
		}
		return nil
	})
	c.patch(t, klusterlet, `{"metadata": {"finalizers": null}}`)
	c.AwaitGone(t, klusterlet)
}

// leaveWithoutKlusterlet deletes the Klusterlet, with which the agent goes, and then the operator, as unjoin says how. It returns what
// unjoin says then.
func (c cluster) leaveWithoutKlusterlet(t *testing.T, name string) string {
	t.Helper()
	klusterlet := c.klusterlet(t)
	c.delete(t, klusterlet)
	c.AwaitGone(t, klusterlet)
	says(t, c.refused(t, "unjoin", "--cluster-name", name), "There is no Klusterlet at all", "--force removes that")
	return c.output(t, "unjoin", "--cluster-name", name, "--force")
}

// leaveWithoutOperator takes the agent away from a cluster without the operator for it, as unjoin says how, and deletes the cluster on this
// hub.
func (c cluster) leaveWithoutOperator(t *testing.T, managed cluster, name string) {
	t.Helper()
	c.deleteWork(t, "hello", name)
	managed.AwaitGone(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello"}})
	says(t, managed.interrupted(t, "klusterlets", "unjoin", "--cluster-name", name, "--wait"),
		"open-cluster-management/klusterlet, does not run", "--force does without it")
	managed.capstan(t, "unjoin", "--cluster-name", name, "--force")
	c.forget(t, name)
}

// loseHub takes the way to the hub from the agent, which says so, and then from all of the cluster, until the function is called.
func (c cluster) loseHub(t *testing.T, hub cluster, name string) (reconnect func()) {
	t.Helper()
	hub.patch(t, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, `{"spec": {"leaseDurationSeconds": 1}}`)
	var cut [][]string
	for _, pod := range c.Pods(t, fleet.NamespaceAgent, nil) {
		cut = append(cut, []string{"-s", pod.Status.PodIP, "-d", hub.NodeIP})
	}
	for _, match := range cut {
		c.reject(t, "-I", match...)
	}
	c.awaitStatus(t, "klusterlet", func(k *operatorv1.Klusterlet) error {
		condition := meta.FindStatusCondition(k.Status.Conditions, fleet.ConditionHubConnectionDegraded)
		if condition == nil || condition.Reason != fleet.ReasonHubUnreachableFromAgent {
			return fmt.Errorf("the condition %s is %v", fleet.ConditionHubConnectionDegraded, condition)
		}
		return nil
	})
	cut = append(cut, []string{"-d", hub.NodeIP})
	c.reject(t, "-I", cut[len(cut)-1]...)
	return func() {
		for _, match := range cut {
			c.reject(t, "-D", match...)
		}
	}
}

// reject has the node and its pods end connections that match, or with the action -D, no more.
func (c cluster) reject(t *testing.T, action string, match ...string) {
	t.Helper()
	for _, chain := range []string{"OUTPUT", "FORWARD"} {
		rule := slices.Concat([]string{"--wait", action, chain, "-p", "tcp"}, match, []string{"-j", "REJECT", "--reject-with", "tcp-reset"})
		if _, err := c.NodeExec(t.Context(), "iptables", rule...); err != nil {
			t.Fatal(err)
		}
	}
}

// forgetWithoutAgent deletes a cluster that has works and no agent any more, as the hub says how.
func (c cluster) forgetWithoutAgent(t *testing.T, name string) {
	t.Helper()
	managed := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.patch(t, managed, `{"spec": {"leaseDurationSeconds": 1}}`) // the hub misses the agent after five of them
	c.delete(t, managed)
	advice := "kubectl annotate managedcluster " + name + " " + fleet.AnnotationDeletionTimeout + "=0s"
	c.awaitManagedCluster(t, name, func(managed *clusterv1.ManagedCluster) error {
		return haveConditions(managed.Status.Conditions, fleet.ConditionDeleting+"=False:"+advice)
	})
	c.kubectl(t, strings.Fields(advice)[1:]...)
	c.AwaitGone(t, managed)
}

// patch changes an object.
func (c cluster) patch(t *testing.T, object client.Object, change string) {
	t.Helper()
	if err := c.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(change))); err != nil {
		t.Fatalf("cluster %s: %v", c.Name, err)
	}
}

// deleteApplied deletes what owns the objects of works that are left, and so these, as unjoin advises.
func (c cluster) deleteApplied(t *testing.T, advice string) {
	t.Helper()
	applied := &workv1.AppliedManifestWorkList{}
	if err := c.Client.List(t.Context(), applied); err != nil || len(applied.Items) != 1 {
		t.Fatalf("cluster %s: %d AppliedManifestWorks, want 1: %v", c.Name, len(applied.Items), err)
	}
	c.follow(t, advice, "delete appliedmanifestworks "+applied.Items[0].Name)
}
