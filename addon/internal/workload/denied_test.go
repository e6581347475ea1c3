package workload

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

func denied(c *clusterv1.ManagedCluster) *clusterv1.ManagedCluster {
	c.Spec.HubAcceptsClient = false
	return c
}

// "The same check wherever a cluster name in an object becomes a namespace to write to: hosted add-ons": whoever may annotate an add-on
// names a ManagedCluster that nobody has accepted, or that was denied.
func TestHostingClusterHasToBeAccepted(t *testing.T) {
	t.Parallel()
	undecided := denied(cluster("host", metav1.ConditionTrue))
	undecided.Status.Conditions = nil
	for name, host := range map[string]*clusterv1.ManagedCluster{"nobody has decided on it": undecided,
		"it is denied": denied(cluster("host", metav1.ConditionTrue))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, configMap("a", 1), annotated(configMap("b", 1), at, "hosting")).hosted()
			h.Hosting = host
			h.reconcile()
			h.expectWrites("create cluster1/addon-hello-deploy-0")
			h.expectCondition("HostingClusterValidity", metav1.ConditionFalse, "HostingClusterInvalid")
		})
	}
}

// "No new works are admitted for a cluster that is denied; add-ons handle the refusal as a wait": none are written, and it is said why.
func TestAddOnOfADeniedCluster(t *testing.T) {
	t.Parallel()
	h := newHub(t, configMap("a", 1))
	h.Installation.Cluster = denied(cluster("cluster1", metav1.ConditionTrue))
	h.reconcile()
	h.expectWrites()
	h.expectCondition("ManifestApplied", metav1.ConditionFalse, "ManifestWorkApplyFailed")
	h.Installation.Cluster = cluster("cluster1", metav1.ConditionTrue)
	h.reconcile()
	h.expectWrites("create cluster1/addon-hello-deploy-0")
}

// Hooks start on no denied cluster, and are not waited for on one that is cut off.
func TestHooksOfADeniedCluster(t *testing.T) {
	t.Parallel()
	h := newHub(t, hookJob("bye"))
	h.reconcile()
	h.removed()
	h.Installation.Cluster = denied(cluster("cluster1", metav1.ConditionTrue))
	h.reconcile()
	h.expectWrites()
	h.expectFinalizers(fleet.FinalizerAddOnPreDelete)
	h.expectCondition("HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted", "accepted again")
	h.Installation.Cluster.Labels = map[string]string{"capstan.io/cut-off": "true"}
	h.reconcile()
	h.expectWrites()
	h.expectFinalizers()
}
