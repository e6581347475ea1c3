package builtin

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// GR-11, CP-10: built-in add-ons that the agent does not run are reported not to work, once, also if one worked before; others are left
// alone.
func TestReconcile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cause Cause
		// reasons are those of the condition of cluster-proxy, of another add-on that is built in, and of one that is not.
		reasons [3]string
	}{
		"by gRPC": {NeedsAPI(), [3]string{fleet.ReasonBuiltInNeedsAPI, fleet.ReasonBuiltInNeedsAPI, ""}},
		"switched off": {SwitchedOff(fleet.AddOnClusterProxy, featuregates.ClusterProxy),
			[3]string{fleet.ReasonBuiltInSwitchedOff, "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			builtIn := map[string]string{fleet.AnnotationBuiltIn: fleet.LabelTrue}
			proxy := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: fleet.AddOnClusterProxy,
				Annotations: builtIn}}
			meta.SetStatusCondition(&proxy.Status.Conditions, metav1.Condition{Type: fleet.ConditionAvailable, Status: metav1.ConditionTrue,
				Reason: fleet.ReasonTunnelConnected})
			accounts := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: fleet.AddOnManagedServiceAccount,
				Annotations: builtIn}}
			other := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "other"}}
			hub := fake.NewClientBuilder().WithScheme(hubclient.Scheme()).WithObjects(proxy, accounts, other).WithStatusSubresource(proxy).Build()
			c := &Controller{hub: hub, cause: test.cause, clock: clock.RealClock{}}
			versions := map[string]bool{}
			for range 2 {
				for i, addOn := range []*addonv1beta1.ManagedClusterAddOn{proxy, accounts, other} {
					if _, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(addOn)}); err != nil {
						t.Fatal(err)
					}
					if err := hub.Get(t.Context(), client.ObjectKeyFromObject(addOn), addOn); err != nil {
						t.Fatal(err)
					}
					expectReason(t, addOn, test.reasons[i])
				}
				versions[proxy.ResourceVersion] = true
			}
			if len(versions) != 1 {
				t.Errorf("what is reported already is written again: %v", versions)
			}
		})
	}
}

// GR-11, CP-10: what was reported of an add-on is taken back when it is another manager's. What others say of it stays.
func TestReportIsTakenBack(t *testing.T) {
	t.Parallel()
	for reason, stays := range map[string]bool{fleet.ReasonBuiltInNeedsAPI: false, fleet.ReasonAddOnLeaseUpdated: true} {
		addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: fleet.AddOnClusterProxy}}
		meta.SetStatusCondition(&addOn.Status.Conditions,
			metav1.Condition{Type: fleet.ConditionAvailable, Status: metav1.ConditionFalse, Reason: reason})
		hub := fake.NewClientBuilder().WithScheme(hubclient.Scheme()).WithObjects(addOn).WithStatusSubresource(addOn).Build()
		c := &Controller{hub: hub, cause: NeedsAPI(), clock: clock.RealClock{}}
		if _, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(addOn)}); err != nil {
			t.Fatal(err)
		}
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(addOn), addOn); err != nil {
			t.Fatal(err)
		}
		if cond := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionAvailable); (cond != nil) != stays {
			t.Errorf("%s: the condition stays: %t", reason, !stays)
		}
	}
}

func expectReason(t *testing.T, addOn *addonv1beta1.ManagedClusterAddOn, reason string) {
	t.Helper()
	cond := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionAvailable)
	if reason == "" && cond == nil || cond != nil && cond.Status == metav1.ConditionFalse && cond.Reason == reason {
		return
	}
	t.Errorf("%s: want the reason %q, have %+v", addOn.Name, reason, cond)
}
