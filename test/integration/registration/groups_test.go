package registration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// TestGroupsNeedOnlyWhatTheyRead runs each group of controllers alone, at an API server that serves nothing but what the group
// reads. Groups that miss something say what to apply, and run once that is done.
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
		if !strings.Contains(controllers.Log(), "kubectl apply --server-side -f deploy/crds") {
			t.Errorf("it says nothing of what to apply: %s", controllers.Log())
		}
		applyFolder(t, existing.Client(t), "../../../deploy/crds")
		framework.AwaitServed(t, existing)
		if err := controllers.Start(); err != nil {
			t.Fatal(err)
		}
		framework.AwaitLog(t, controllers, "Starting workers", 1)
	})
}

// applyFolder applies the objects in the files of a folder, one in each, as "kubectl apply --server-side -f" does.
func applyFolder(t *testing.T, c client.Client, folder string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the files %v of %s: %v", files, folder, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(content, &object.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("kubectl")); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
