package clusterproxy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/addon/single"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// CP-10: a hub that takes a report and never answers holds up the changes of the rules, which come after it, for ten seconds and no longer.
func TestReportEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent := interceptor.Funcs{SubResourcePatch: func(ctx context.Context, _ client.Client, _ string, _ client.Object, _ client.Patch,
			_ ...client.SubResourcePatchOption) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		allowed := &rules{}
		allowed.set(nil)
		c := &Controller{Options: Options{Clock: clock.RealClock{}}, hub: interceptor.NewClient(fake.NewClientBuilder().Build(), silent),
			rules: allowed, link: &link{connected: true}}
		addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: fleet.AddOnClusterProxy}}
		begun := time.Now()
		if err := c.report(t.Context(), addOn); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a report that nobody answers ends with %v", err)
		}
		if took := time.Since(begun); took != 10*time.Second {
			t.Errorf("it ends after %s", took)
		}
	})
}

// CP-10: of an add-on that is another manager's now, the agent says nothing any more. What others say of it stays.
func TestReportIsTakenBack(t *testing.T) {
	t.Parallel()
	for reason, stays := range map[string]bool{fleet.ReasonTunnelConnected: false, fleet.ReasonTunnelNotConnected: false,
		fleet.ReasonHubAccessRulesInvalid: false, fleet.ReasonAddOnLeaseUpdated: true, fleet.ReasonWorkApplied: true} {
		addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: fleet.AddOnClusterProxy}}
		meta.SetStatusCondition(&addOn.Status.Conditions,
			metav1.Condition{Type: fleet.ConditionAvailable, Status: metav1.ConditionTrue, Reason: reason})
		hub := fake.NewClientBuilder().WithScheme(hubclient.Scheme()).WithObjects(addOn).WithStatusSubresource(addOn).Build()
		c := &Controller{hub: hub, link: &link{connected: true}, configMaps: single.New(nil, "configmaps", &corev1.ConfigMap{})}
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

// CP-10: whatever is wrong with the rules of the cluster, a condition can say it: the API takes 32 KiB.
func TestProblemsOfRulesInConditions(t *testing.T) {
	t.Parallel()
	allowed := &rules{clock: clock.RealClock{}}
	allowed.set(hubAccess(map[string]string{keyRules: "[{}]", keyOIDC: "clientID: x\nissuerURL: " + strings.Repeat("x", 100<<10)}))
	cond := (&Controller{rules: allowed, link: &link{}}).condition()
	if cond.Reason != fleet.ReasonHubAccessRulesInvalid || len(cond.Message) > 32<<10 {
		t.Errorf("with a value of 100 KiB, the condition is %s, with a message of %d bytes", cond.Reason, len(cond.Message))
	}
}
