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
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// GR-11: a built-in add-on is reported not to work, once; others are left alone.
func TestReconcile(t *testing.T) {
	t.Parallel()
	builtIn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: fleet.AddOnClusterProxy,
		Annotations: map[string]string{fleet.AnnotationBuiltIn: fleet.LabelTrue}}}
	other := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "other"}}
	hub := fake.NewClientBuilder().WithScheme(hubclient.Scheme()).WithObjects(builtIn, other).WithStatusSubresource(builtIn).Build()
	c := &Controller{hub: hub, clock: clock.RealClock{}}
	versions := map[string]bool{}
	for range 2 {
		for _, addOn := range []*addonv1beta1.ManagedClusterAddOn{builtIn, other} {
			if _, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(addOn)}); err != nil {
				t.Fatal(err)
			}
			if err := hub.Get(t.Context(), client.ObjectKeyFromObject(addOn), addOn); err != nil {
				t.Fatal(err)
			}
		}
		versions[builtIn.ResourceVersion] = true
	}
	cond := meta.FindStatusCondition(builtIn.Status.Conditions, fleet.ConditionAvailable)
	if cond == nil || cond.Status != metav1.ConditionFalse || cond.Reason != fleet.ReasonBuiltInNeedsAPI || len(versions) != 1 {
		t.Errorf("%+v in the versions %v", cond, versions)
	}
	if len(other.Status.Conditions) != 0 {
		t.Errorf("the other one has %+v", other.Status.Conditions)
	}
}
