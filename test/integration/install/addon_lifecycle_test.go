package install

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// testAddOnsExisting installs and configures an add-on on a hub in an existing cluster, where a scheduler that is not ours
// decides.
func testAddOnsExisting(t *testing.T, existing *env.Server) {
	s := framework.NewAddOnSiteOn(t, existing, "lifecycle-existing", "cluster1", "cluster2")
	s.Apply(t, framework.DeploymentConfig("deploy-config", "one"))
	s.Apply(t, strings.ReplaceAll(framework.Canaries, "placement-aws", s.Name+"-of-another"))
	framework.Decide(t, s.C, s.Name+"-of-another", s.Name+"-cluster1")
	entry := &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	s.Edit(t, entry, func() { entry.Spec.InstallStrategy.Placements[0].Namespace = s.Name + "-of-another" })
	s.AwaitInstalled(t, "cluster1")
	s.AwaitHash(t, "cluster1")
	s.Deploy(t, "cluster1", metav1.ConditionTrue)
	s.AwaitProgression(t, metav1.ConditionFalse, "selected clusters 1. configured addons 1/1 completed with no errors")
	s.Await(t, "cluster1", framework.HasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionFalse, fleet.ReasonCompleted, ""))
	env.Eventually(t, func(ctx context.Context) error {
		mc := &clusterv1.ManagedCluster{}
		if err := s.C.Get(ctx, client.ObjectKey{Name: s.Name + "-cluster1"}, mc); err != nil {
			return err
		}
		if _, found := mc.Labels[fleet.AddOnFeatureLabel(s.Name)]; !found {
			return fmt.Errorf("no label of the add-on in %v", mc.Labels)
		}
		return nil
	})
}
