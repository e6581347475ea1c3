package walkthrough

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// The add-on of the examples runs in pods: its controller on the hub, its agent on a cluster, where it copies what the hub has for it.
// It is removed from one cluster by "capstan addon disable", and from all by deleting the ClusterManagementAddOn. Before come add-ons of
// templates, and then those that are built in, by their charts.
//
// AM-30, AM-31, AM-32, AM-33, AM-36, CA-36, CA-37, CA-38, CG-02, CG-07, CG-08, CP-12, HC-08, HC-09, HC-10, HC-12, NX-03, PL-23
func TestAddOn(t *testing.T) {
	t.Parallel()
	clusters := start(t, "hub", "cluster1")
	hub, managed := clusters[0], clusters[1]
	hub.importImages(t, "capstan-hub", "helloworld-addon")
	managed.importImages(t, "capstan-agent", "helloworld-addon")
	managed.join(t, hub.initialize(t, "--feature-gates", "ClusterProfile=true,PlacementDebugServer=true"), "cluster1", "--wait")
	hub.accept(t, "cluster1")
	t.Run("of templates", func(t *testing.T) { hub.deploysTemplates(t, managed, "cluster1") }) //nolint:paralleltest // in the same clusters
	before := managed.Inventory(t)

	hub.Apply(t, example(t, "helloworld", "rights.yaml"))
	hub.Apply(t, example(t, "helloworld", "controller.yaml"))
	hub.Apply(t, example(t, "helloworld", "clustermanagementaddon.yaml"))
	hub.AwaitAvailable(t, "helloworld", "helloworld-controller")
	for _, remove := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"by capstan addon disable", func(t *testing.T) {
			says(t, hub.capstan(t, "addon", "disable", "--names", "helloworld", "--clusters", "cluster1"), "Undeploying helloworld add-on")
		}},
		{"by deleting the ClusterManagementAddOn", func(t *testing.T) {
			hub.delete(t, &addonv1alpha1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: "helloworld"}})
		}},
	} {
		t.Run(remove.name, func(t *testing.T) { //nolint:paralleltest // it is the same add-on
			says(t, hub.capstan(t, "addon", "enable", "--names", "helloworld", "--clusters", "cluster1", "--namespace", "default"),
				"Deploying helloworld add-on to namespaces default of managed cluster: cluster1.")
			managed.AwaitAvailable(t, "default", "helloworld-agent")
			hub.awaitAddOn(t, "cluster1", "helloworld")
			hub.Apply(t, example(t, "helloworld", "configmap.yaml"))
			managed.Eventually(t, func(ctx context.Context) error {
				return managed.Client.Get(ctx, types.NamespacedName{Namespace: "default", Name: "helloworld"}, &corev1.ConfigMap{})
			})
			remove.do(t)
			hub.AwaitGone(t, &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "helloworld"}})
			managed.awaitNoPods(t, "default", "helloworld-agent")
			// What the agent has made in a namespace that was there before is its own.
			own := metav1.ObjectMeta{Namespace: "default", Name: "helloworld"}
			managed.delete(t, &corev1.ConfigMap{ObjectMeta: own}, &coordinationv1.Lease{ObjectMeta: own})
			managed.AwaitInventory(t, before)
		})
	}
	t.Run("by charts", func(t *testing.T) { hub.reachesByCharts(t, managed, "cluster1") }) //nolint:paralleltest // they are the same clusters
}

// example is a file below deploy/examples, with the images of this commit, and none that nodes pull again.
func example(t *testing.T, path ...string) string {
	t.Helper()
	content := readText(t, filepath.Join(append([]string{"..", "..", "deploy", "examples"}, path...)...))
	return strings.NewReplacer("helloworld-addon:latest", registry+"helloworld-addon:"+tag,
		"resource-usage-collect-addon:latest", registry+"resource-usage-collect-addon:"+tag,
		"image: busybox\n", "image: busybox:1.37\n").Replace(content)
}

// awaitAddOn waits until an add-on works on a cluster.
func (c cluster) awaitAddOn(t *testing.T, managed, name string) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error {
		addOn := &addonv1alpha1.ManagedClusterAddOn{}
		if err := c.Client.Get(ctx, types.NamespacedName{Namespace: managed, Name: name}, addOn); err != nil {
			return err
		}
		return haveConditions(addOn.Status.Conditions, fleet.ConditionAvailable+"=True", "ManifestApplied=True", "RegistrationApplied=True")
	})
}
