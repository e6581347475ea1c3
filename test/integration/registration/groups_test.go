package registration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// TestGroupsNeedOnlyWhatTheyRead runs each group of controllers alone, at an API server that serves nothing but what the group
// reads.
func TestGroupsNeedOnlyWhatTheyRead(t *testing.T) {
	t.Parallel()
	existing := env.StartSandbox(t)
	for _, group := range []struct{ name, reads string }{
		{"registration", "managedclusters managedclustersets managedclustersetbindings managedclusteraddons"},
		{"placement", "managedclusters managedclustersets managedclustersetbindings placements placementdecisions addonplacementscores"},
		{"work", "managedclusters managedclustersets managedclustersetbindings placements placementdecisions manifestworks manifestworkreplicasets"},
		{"addon", "managedclusters managedclustersets managedclustersetbindings placements placementdecisions manifestworks managedclusteraddons clustermanagementaddons addontemplates addondeploymentconfigs"},
	} {
		t.Run(group.name, func(t *testing.T) {
			framework.ServeOnly(t, existing, strings.Fields(group.reads))
			controllers := env.NewControllers(t, existing.Kubeconfig, "--controllers", group.name, "--leader-elect=false",
				"--health-probe-bind-address", "0")
			if err := controllers.Start(); err != nil {
				t.Fatal(err)
			}
			env.Eventually(t, func(context.Context) error {
				log := controllers.Log()
				began, work := strings.Count(log, "Starting Controller"), strings.Count(log, "Starting workers")
				if began == 0 || work < began {
					return fmt.Errorf("%d of %d controllers work", work, began)
				}
				return nil
			})
			if err := controllers.Stop(); err != nil {
				t.Errorf("they did not stop well: %v", err)
			}
			if log := controllers.Log(); strings.Contains(log, "no matches for kind") {
				t.Errorf("a kind is missed:\n%s", log)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		framework.ServeOnly(t, existing, []string{"managedclusters", "placements", "placementdecisions", "manifestworks"})
		controllers := env.NewControllers(t, existing.Kubeconfig, "--controllers", "placement,work", "--leader-elect=false",
			"--health-probe-bind-address", "0")
		if err := controllers.Start(); err != nil {
			t.Fatal(err)
		}
		controllers.AwaitExit(t)
		for _, says := range []string{
			"the CRD managedclustersets.cluster.open-cluster-management.io with version v1beta2, for the controllers of placement",
			"the CRD manifestworkreplicasets.work.open-cluster-management.io with version v1alpha1, for the controllers of work",
		} {
			if !strings.Contains(controllers.Log(), says) {
				t.Errorf("%q is missing in: %s", says, controllers.Log())
			}
		}
	})
}
