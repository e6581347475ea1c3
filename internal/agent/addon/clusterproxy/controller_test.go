package clusterproxy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
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
