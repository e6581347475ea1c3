package workload

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

func denied(c *clusterv1.ManagedCluster) *clusterv1.ManagedCluster {
	c.Spec.HubAcceptsClient = false
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: fleet.ConditionHubAccepted, Status: metav1.ConditionFalse,
		Reason: fleet.ReasonHubClusterAdminDenied, LastTransitionTime: metav1.NewTime(noon)})
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

// The agent of a denied cluster still reports, so the cluster stays available; hooks that cannot start there are not waited for forever.
func TestHooksOfADeniedClusterEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(h *hub)
		want   time.Duration // after noon, when the cluster is denied
	}{
		"deleted before":   {func(*hub) {}, hookTimeout},
		"deleted after":    {deletedLater, hookTimeout + time.Minute},
		"lost before":      {lost(-30 * time.Second), hookTimeout - 30*time.Second},
		"lost after":       {lost(time.Minute), hookTimeout},
		"not noticed yet":  {unnoticed, hookTimeout},
		"an administrator": {func(h *hub) { set(&h.Installation.AddOn.Annotations, fleet.AnnotationPreDeleteTimeout, "6m") }, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, hookJob("bye"))
			h.reconcile()
			h.Now = noon.Add(-time.Minute)
			h.removed()
			h.Now = noon
			h.Installation.Cluster = denied(cluster("cluster1", metav1.ConditionTrue))
			test.change(h)
			h.reconcile()
			h.expectWrites()
			h.expectFinalizers(fleet.FinalizerAddOnPreDelete)
			h.expectCondition("HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted", "cluster cluster1 is denied",
				"removes the add-on all the same at "+noon.Add(test.want).Format(time.RFC3339))
			if h.plan.RequeueAfter != test.want {
				t.Errorf("comes back after %s, want %s", h.plan.RequeueAfter, test.want)
			}
			denied(h.Installation.Cluster)
			h.Now = noon.Add(test.want)
			h.reconcile()
			h.expectWrites()
			h.expectFinalizers()
		})
	}
}

// deletedLater has the add-on be deleted a minute after noon.
func deletedLater(h *hub) {
	h.Installation.AddOn.DeletionTimestamp = new(metav1.NewTime(noon.Add(time.Minute)))
}

// lost makes the cluster of the add-on unavailable so long after noon.
func lost(after time.Duration) func(*hub) {
	return func(h *hub) {
		meta.SetStatusCondition(&h.Installation.Cluster.Status.Conditions, metav1.Condition{Type: fleet.ConditionClusterAvailable,
			Status: metav1.ConditionUnknown, LastTransitionTime: metav1.NewTime(noon.Add(after))})
	}
}

// unnoticed has the hub not know yet that the cluster of the add-on is denied.
func unnoticed(h *hub) {
	meta.SetStatusCondition(&h.Installation.Cluster.Status.Conditions, metav1.Condition{Type: fleet.ConditionHubAccepted,
		Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-2 * time.Hour))})
}
