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
			h.expectFinalizers()
			h.expectCondition("HostingClusterValidity", metav1.ConditionFalse, "HostingClusterInvalid")
			h.expectNoCondition("HostingManifestApplied") // with it, the add-on would count as deployed
		})
	}
}

// "Other works stay": a hosting cluster that is not accepted, even for a moment, keeps what it has of add-ons of other clusters, and gets
// nothing new.
func TestHostingClusterIsDenied(t *testing.T) {
	t.Parallel()
	for name, host := range notAccepted() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := hostedWithHook(t)
			h.Hosting = host
			h.Workload.Objects[0] = annotated(configMap("a", 2), at, "hosting")
			h.reconcile()
			h.expectWrites()
			h.expectFinalizers(fleet.FinalizerHostingAddOnPreDelete, fleet.FinalizerHostingManifestsCleanup)
			h.expectCondition("HostingClusterValidity", metav1.ConditionFalse, "HostingClusterInvalid", "is not accepted")
			h.expectCondition("HostingManifestApplied", metav1.ConditionFalse, "ManifestWorkApplyFailed", "Cluster host is not accepted")
			h.Hosting = cluster("host", metav1.ConditionTrue)
			h.reconcile()
			h.expectWrites("update host/addon-hello-deploy-hosting-cluster1-0")
			h.expectCondition("HostingClusterValidity", metav1.ConditionTrue, "HostingClusterValid")
		})
	}
}

// notAccepted are hosting clusters that were accepted before.
func notAccepted() map[string]*clusterv1.ManagedCluster {
	again := denied(cluster("host", metav1.ConditionTrue))
	again.Spec.HubAcceptsClient = true
	cutOff := denied(cluster("host", metav1.ConditionTrue))
	cutOff.Labels = map[string]string{fleet.LabelCutOff: fleet.LabelTrue}
	undecided := cluster("host", metav1.ConditionTrue)
	undecided.Spec.HubAcceptsClient, undecided.Status.Conditions = false, nil
	return map[string]*clusterv1.ManagedCluster{
		"denied":                             denied(cluster("host", metav1.ConditionTrue)),
		"cut off":                            cutOff,
		"accepted again, but not set up yet": again,
		"imported again":                     undecided,
	}
}

// hostedWithHook is an add-on that is deployed on a hosting cluster, on which it has a hook, too.
func hostedWithHook(t *testing.T) *hub {
	h := newHub(t, annotated(configMap("a", 1), at, "hosting"), annotated(hookJob("bye"), at, "hosting")).hosted()
	h.reconcile()
	h.agents(nil)
	h.reconcile()
	h.expectCondition("HostingManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")
	return h
}

// The hooks on a denied hosting cluster, and what is to be deleted there, are waited for as on one that is not available.
func TestHostedRemovalFromADeniedCluster(t *testing.T) {
	t.Parallel()
	h := hostedWithHook(t)
	h.Hosting = denied(cluster("host", metav1.ConditionTrue))
	h.removed()
	h.reconcile()
	h.expectWrites()
	h.expectFinalizers(fleet.FinalizerHostingAddOnPreDelete, fleet.FinalizerHostingManifestsCleanup)
	h.expectCondition("HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted", "Job ns/bye on cluster host",
		"cluster host is denied")
	if h.plan.RequeueAfter != hookTimeout {
		t.Errorf("it comes back after %s", h.plan.RequeueAfter)
	}
	h.Now = h.Now.Add(hookTimeout)
	h.reconcile()
	h.expectWrites("delete host/addon-hello-deploy-hosting-cluster1-0")
	h.expectFinalizers()
}

// The agent of a denied hosting cluster may still clean up, and that of one that is cut off may not.
func TestHostedCleanupOfADeniedCluster(t *testing.T) {
	t.Parallel()
	h := newHub(t, annotated(configMap("a", 1), at, "hosting")).hosted()
	h.reconcile()
	h.agents(nil)
	h.Hosting = denied(cluster("host", metav1.ConditionTrue))
	h.removed()
	h.reconcile()
	h.expectWrites("delete host/addon-hello-deploy-hosting-cluster1-0")
	h.expectFinalizers(fleet.FinalizerHostingManifestsCleanup)
	h.expectCondition("HostingManifestApplied", metav1.ConditionFalse, "AddonManifestAppliedFailed", "cluster host is denied")
	h.Hosting.Labels = map[string]string{fleet.LabelCutOff: fleet.LabelTrue}
	h.reconcile()
	h.expectWrites()
	h.expectFinalizers()
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

// A6: the agent of a denied cluster still reports, so the cluster stays available; hooks that cannot start there are not waited for
// forever.
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
			h.Now = noon.Add(test.want)
			h.reconcile()
			h.expectWrites()
			h.expectFinalizers()
		})
	}
}

// Until the hub has noticed a denial, it is not known how long a removal waits: a time from now on would be another one at each look.
func TestDenialThatIsNotNoticed(t *testing.T) {
	t.Parallel()
	h := newHub(t, hookJob("bye"))
	h.reconcile()
	h.Now = noon
	h.removed()
	h.Installation.Cluster = denied(cluster("cluster1", metav1.ConditionTrue))
	unnoticed(h)
	h.reconcile()
	h.expectFinalizers(fleet.FinalizerAddOnPreDelete)
	h.expectCondition("HookManifestCompleted", metav1.ConditionFalse, "HookManifestIsNotCompleted", "cluster cluster1 is denied; to remove")
	if h.plan.RequeueAfter != time.Minute {
		t.Errorf("comes back after %s", h.plan.RequeueAfter)
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
