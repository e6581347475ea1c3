package addons

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// RG-63, gap A1: the hub learns at once that an add-on's agent renews its lease, and as soon as the lease has run out that it
// does not any more.
func TestAddOnLease(t *testing.T) {
	t.Parallel()
	const cluster, name = "addonlease", "addonlease"
	const grace = 3 * time.Second // of a lease of a second
	env.Join(t, framework.Hub, framework.Managed, cluster, "--kubeconfig", framework.Hub.Kubeconfig)
	m := framework.Managed.Client(t)
	addOn := framework.NewAddOn(t, cluster, name, name)
	framework.ChangeAddOn(t, addOn, func(status *addonv1beta1.ManagedClusterAddOnStatus) {
		status.HealthCheck.Mode = addonv1beta1.HealthCheckModeLease
	})
	framework.AwaitAddOn(t, addOn, "Available", metav1.ConditionUnknown, "ManagedClusterAddOnLeaseNotFound", "no lease")

	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: framework.Namespace(t, m, name), Name: name}}
	lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = ptr.To[int32](60), ptr.To(metav1.NowMicro())
	framework.Create(t, m, lease)
	framework.AwaitAddOn(t, addOn, "Available", metav1.ConditionTrue, "ManagedClusterAddOnLeaseUpdated", name+" add-on is available.")
	lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = ptr.To[int32](1), ptr.To(metav1.NowMicro())
	renewed := time.Now()
	if err := m.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	framework.AwaitAddOn(t, addOn, "Available", metav1.ConditionFalse, "ManagedClusterAddOnLeaseUpdateStopped", "3s")
	if took := time.Since(renewed); took < grace {
		t.Errorf("lost after %s, and its lease says %s", took, grace)
	}
	// The agent of an add-on whose clock is behind is alive all the same.
	lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = ptr.To[int32](60),
		ptr.To(metav1.NewMicroTime(lease.Spec.RenewTime.Add(time.Millisecond)))
	if err := m.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	framework.AwaitAddOn(t, addOn, "Available", metav1.ConditionTrue, "ManagedClusterAddOnLeaseUpdated", "")
	if err := m.Delete(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	framework.AwaitAddOn(t, addOn, "Available", metav1.ConditionUnknown, "ManagedClusterAddOnLeaseNotFound", "")

	// In hosted mode the lease is on the cluster that the agent runs in.
	h := framework.Hub.Client(t)
	framework.ChangeAddOn(t, addOn, func(status *addonv1beta1.ManagedClusterAddOnStatus) {
		meta.SetStatusCondition(&status.Conditions, hostingClusterIsValid)
	})
	framework.MergePatch(t, h, addOn, `{"metadata":{"annotations":{"addon.open-cluster-management.io/hosting-cluster-name":"local"}}}`)
	framework.Create(t, h, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: framework.Namespace(t, h, name), Name: name},
		Spec: coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NowMicro())}})
	framework.AwaitAddOn(t, addOn, "Available", metav1.ConditionTrue, "ManagedClusterAddOnLeaseUpdated", "")
}

// RG-63: the health of an add-on that finds it in another way is not the agent's to tell.
func TestAddOnLeaseIsNotAsked(t *testing.T) {
	t.Parallel()
	const cluster, name = "addoncustom", "addoncustom"
	env.Join(t, framework.Hub, framework.Managed, cluster)
	m := framework.Managed.Client(t)
	other := framework.NewAddOn(t, cluster, "addoncustom-other", name)
	addOn := framework.NewAddOn(t, cluster, name, name)
	framework.ChangeAddOn(t, addOn, func(status *addonv1beta1.ManagedClusterAddOnStatus) {
		status.HealthCheck.Mode = addonv1beta1.HealthCheckModeCustomized
		status.Conditions = []metav1.Condition{{Type: "Available", Status: metav1.ConditionTrue, Reason: fleet.ReasonProbeAvailable,
			LastTransitionTime: metav1.Now()}}
	})
	for _, one := range []string{other.Name, name} {
		framework.Create(t, m, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: framework.Namespace(t, m, name), Name: one}})
	}
	framework.AwaitAddOn(t, other, "Available", metav1.ConditionFalse, "ManagedClusterAddOnLeaseUpdateStopped", "")
	framework.AwaitAddOn(t, addOn, "Available", metav1.ConditionTrue, fleet.ReasonProbeAvailable, "")
}
