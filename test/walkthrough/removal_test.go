package walkthrough

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// appliedWorks is the CRD that stays with what works have applied.
const appliedWorks = "appliedmanifestworks.work.open-cluster-management.io"

// A cluster that still has works leaves its hub. In whatever order what belongs to it is removed, each step ends or says what to do, and
// nothing is left after the last but what works have applied, where that was asked for.
//
// CA-19, CA-20, KL-32
func TestRemovalInAnyOrder(t *testing.T) {
	t.Parallel()
	clusters := start(t, "hub", "cluster1")
	hub, managed := clusters[0], clusters[1]
	hub.importImages(t, "capstan-hub")
	managed.importImages(t, "capstan-agent")
	beforeHub, before := hub.Inventory(t), managed.Inventory(t)
	initialized := hub.initialize(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello"}}
	for _, order := range []struct {
		name   string
		remove func(t *testing.T, name string)
		stays  bool // what the work has applied
	}{
		{"klusterlet-first", func(t *testing.T, name string) {
			klusterlet := managed.klusterlet(t)
			managed.delete(t, klusterlet)
			managed.AwaitGone(t, klusterlet)
			managed.capstan(t, "unjoin", "--cluster-name", name)
			hub.forgetWithoutAgent(t, name)
		}, true},
		{"managedcluster-first", func(t *testing.T, name string) {
			hub.forget(t, name)
			managed.AwaitGone(t, pod.DeepCopy())
			managed.capstan(t, "unjoin", "--cluster-name", name, "--wait")
		}, false},
		{"operator-first", func(t *testing.T, name string) {
			managed.deleteDeployment(t, fleet.NamespaceOperators, "klusterlet")
			hub.capstan(t, "delete", "work", "hello", "--clusters", name, "--timeout", "60")
			managed.AwaitGone(t, pod.DeepCopy())
			says(t, managed.interrupted(t, "klusterlets", "unjoin", "--cluster-name", name, "--wait"),
				"open-cluster-management/klusterlet, does not run", "--force does without it")
			managed.capstan(t, "unjoin", "--cluster-name", name, "--force")
			hub.forget(t, name)
		}, false},
		{"hub-first", func(t *testing.T, name string) {
			says(t, hub.refused(t, "clean"), "these clusters of the hub are available: "+name, "capstan unjoin", "--force")
			// An agent that runs might still see its works deleted, and take off what they have applied.
			managed.deleteDeployment(t, fleet.NamespaceOperators, "klusterlet")
			managed.deleteDeployment(t, fleet.NamespaceAgent, "klusterlet-registration-agent")
			managed.deleteDeployment(t, fleet.NamespaceAgent, "klusterlet-work-agent")
			managed.awaitNoPods(t, fleet.NamespaceAgent, "")
			hub.clean(t, hub, []string{"klusterlet-first", "managedcluster-first", "operator-first", name}, "--force")
			says(t, managed.refused(t, "unjoin", "--cluster-name", name), "hello", "--force leaves what they applied")
			managed.capstan(t, "unjoin", "--cluster-name", name, "--force")
		}, true},
	} {
		passed := t.Run(order.name, func(t *testing.T) { //nolint:paralleltest // they are of the same clusters
			managed.join(t, initialized, order.name)
			hub.accept(t, order.name)
			applied := hub.createWork(t, managed, order.name)
			order.remove(t, order.name)
			if order.stays {
				if left := managed.AwaitPod(t, "default", "hello"); left.UID != applied.UID {
					t.Error("the pod of the work has been replaced")
				}
				managed.deleteApplied(t)
				managed.AwaitGone(t, pod.DeepCopy())
				managed.delete(t, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: appliedWorks}})
			}
			managed.awaitNotServed(t, operatorv1.GroupVersion.WithResource("klusterlets"))
			managed.AwaitInventory(t, before)
		})
		if !passed {
			t.FailNow()
		}
	}
	hub.awaitNotServed(t, clusterv1.GroupVersion.WithResource("managedclusters"))
	hub.AwaitInventory(t, beforeHub)
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

// deleteApplied deletes what owns the objects of works that are left, and so these, as unjoin says.
func (c cluster) deleteApplied(t *testing.T) {
	t.Helper()
	if err := c.Client.DeleteAllOf(t.Context(), &workv1.AppliedManifestWork{}); err != nil {
		t.Fatalf("cluster %s: %v", c.Name, err)
	}
}
