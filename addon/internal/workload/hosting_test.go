package workload

import (
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const at = fleet.AnnotationHostedManifestLocation

// AF-16, AF-12: each object goes to the cluster its annotation says.
func TestHosted(t *testing.T) {
	t.Parallel()
	legacy := configMap("legacy", 1)
	legacy.SetLabels(map[string]string{fleet.LabelHostedManifestLocation: "hosting"})
	h := newHub(t, configMap("a", 1), annotated(configMap("b", 1), at, "managed"), annotated(configMap("c", 1), at, "hosting"),
		annotated(configMap("d", 1), at, "none"), legacy).hosted()
	h.reconcile()
	h.expectWrites("create cluster1/addon-hello-deploy-0", "create host/addon-hello-deploy-hosting-cluster1-0")
	h.expectObjects("cluster1", "addon-hello-deploy-0", "ConfigMap a", "ConfigMap b")
	h.expectObjects("host", "addon-hello-deploy-hosting-cluster1-0", "ConfigMap c", "ConfigMap legacy")
	h.expectFinalizers(fleet.FinalizerHostingManifestsCleanup)
	h.expectCondition("HostingClusterValidity", metav1.ConditionTrue, "HostingClusterValid")
	w := h.work("host", "addon-hello-deploy-hosting-cluster1-0")
	if len(w.OwnerReferences) != 0 ||
		!maps.Equal(w.Labels, map[string]string{fleet.LabelAddOnName: "hello", fleet.LabelAddOnNamespace: "cluster1"}) {
		t.Errorf("owners %v, labels %v", w.OwnerReferences, w.Labels)
	}
	h.agents(nil)
	h.reconcile()
	h.expectWrites()
	h.expectCondition("HostingManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")

	// Another cluster hosts the agent now.
	h.Installation.HostingCluster = "host2"
	h.Hosting = cluster("host2", metav1.ConditionTrue)
	h.reconcile()
	h.expectWrites("create host2/addon-hello-deploy-hosting-cluster1-0", "delete host/addon-hello-deploy-hosting-cluster1-0")
	h.agents(nil)

	// The agent moves to its own cluster.
	h.Installation.HostingCluster = ""
	h.Hosting = nil
	h.reconcile()
	h.expectWrites("update cluster1/addon-hello-deploy-0", "delete host2/addon-hello-deploy-hosting-cluster1-0")
	h.expectObjects("cluster1", "addon-hello-deploy-0", "ConfigMap a", "ConfigMap b", "ConfigMap c", "ConfigMap d", "ConfigMap legacy")
	h.expectFinalizers()
	h.expectNoCondition("HostingClusterValidity")
	h.expectNoCondition("HostingManifestApplied")
}

// AF-16: an agent stays where it is until it is known what is to run elsewhere.
func TestHostChangesWhileNothingIsKnown(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"host2", ""} {
		h := newHub(t, configMap("a", 1), annotated(configMap("b", 1), at, "hosting")).hosted()
		h.reconcile()
		h.agents(nil)
		workload := h.Workload
		h.Workload = nil
		h.Installation.HostingCluster, h.Hosting = host, nil
		if host != "" {
			h.Hosting = cluster(host, metav1.ConditionTrue)
		}
		h.reconcile()
		h.expectWrites()
		h.Workload = workload
		h.reconcile()
		if !slices.Contains(h.writes, "delete host/addon-hello-deploy-hosting-cluster1-0") {
			t.Errorf("moving to %q: %q", host, h.writes)
		}
	}
}

// A cluster may host its own agent.
func TestHostedByItself(t *testing.T) {
	t.Parallel()
	h := newHub(t, configMap("a", 1), annotated(configMap("b", 1), at, "hosting")).hosted()
	h.Installation.HostingCluster = "cluster1"
	h.Hosting = h.Installation.Cluster
	h.reconcile()
	h.expectWrites("create cluster1/addon-hello-deploy-0", "create cluster1/addon-hello-deploy-hosting-cluster1-0")
	if w := h.work("cluster1", "addon-hello-deploy-hosting-cluster1-0"); len(w.OwnerReferences) != 1 ||
		w.Labels[fleet.LabelAddOnNamespace] != "" {
		t.Errorf("owners %v, labels %v", w.OwnerReferences, w.Labels)
	}
	h.agents(nil)
	h.reconcile()
	h.expectWrites()
}

// AF-16: without its hosting cluster, an add-on keeps what it has on its own.
func TestHostingClusterIsGone(t *testing.T) {
	t.Parallel()
	h := newHub(t, configMap("a", 1), annotated(configMap("b", 1), at, "hosting")).hosted()
	h.reconcile()
	h.agents(nil)
	h.Hosting.DeletionTimestamp = new(metav1.NewTime(noon))
	h.reconcile()
	h.expectWrites("delete host/addon-hello-deploy-hosting-cluster1-0")
	h.expectCondition("HostingClusterValidity", metav1.ConditionFalse, "HostingClusterInvalid", "ManagedCluster host", "is being deleted",
		fleet.AnnotationHostingClusterName)
	h.expectFinalizers()
	h.Hosting = nil
	h.reconcile()
	h.expectWrites()
	h.expectCondition("HostingClusterValidity", metav1.ConditionFalse, "HostingClusterInvalid", "There is no ManagedCluster host", "import it")
	h.removed()
	h.reconcile()
	h.expectFinalizers()
}

// AF-16: the add-on stays until its agent is gone from the hosting cluster, or that cannot be done.
func TestHostedRemoval(t *testing.T) {
	t.Parallel()
	for name, hosting := range map[string]metav1.ConditionStatus{"available": metav1.ConditionTrue, "not available": metav1.ConditionUnknown} {
		h := newHub(t, annotated(configMap("b", 1), at, "hosting")).hosted()
		h.reconcile()
		h.agents(nil)
		h.Hosting = cluster("host", hosting)
		h.removed()
		h.reconcile()
		h.expectWrites("delete host/addon-hello-deploy-hosting-cluster1-0")
		h.expectFinalizers(fleet.FinalizerHostingManifestsCleanup)
		h.expectCondition("HostingManifestApplied", metav1.ConditionFalse, "AddonManifestAppliedFailed", "hosting cluster host is being deleted")
		h.Now = h.Now.Add(hookTimeout)
		h.reconcile()
		h.expectWrites()
		if name == "available" {
			h.expectFinalizers(fleet.FinalizerHostingManifestsCleanup)
			h.agents(nil)
			h.reconcile()
		}
		h.expectFinalizers()
	}
}

// AF-16: a location that does not exist is an error that says which there are.
func TestUnknownLocation(t *testing.T) {
	t.Parallel()
	h := newHub(t, annotated(configMap("b", 1), at, "moon"))
	if _, err := New(h.Input); err == nil || err.Error() != `manifest 0 (*unstructured.Unstructured ns/b): `+at+
		` is "moon"; it has to be managed, hosting or none` {
		t.Errorf("error %v", err)
	}
}
