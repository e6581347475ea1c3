package builtin

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/addon/config"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// A change of a configuration reads the add-ons that have it, and none of the others of a fleet.
func TestConfiguredBy(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := addonv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	having := func(cluster, addOn, resource, named string) *addonv1beta1.ManagedClusterAddOn {
		a := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: addOn}}
		reference := addonv1beta1.ConfigReference{DesiredConfig: &addonv1beta1.ConfigSpecHash{}}
		reference.Group, reference.Resource = "addon.open-cluster-management.io", resource
		reference.DesiredConfig.Namespace, reference.DesiredConfig.Name = "configs", named
		a.Status.ConfigReferences = []addonv1beta1.ConfigReference{{}, reference}
		return a
	}
	read := 0
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&addonv1beta1.ManagedClusterAddOn{}, indexConfig, configsOf).
		WithObjects(
			having("c1", fleet.AddOnClusterProxy, config.DeploymentConfigs.Resource, "mine"),
			having("c2", fleet.AddOnClusterProxy, config.DeploymentConfigs.Resource, "another"),
			having("c3", fleet.AddOnClusterProxy, "addontemplates", "mine"),
			having("c4", "of-another-manager", config.DeploymentConfigs.Resource, "mine"),
		).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if addOns, ok := list.(*addonv1beta1.ManagedClusterAddOnList); ok {
				read += len(addOns.Items)
			}
			return err
		},
	})
	changed := &addonv1beta1.AddOnDeploymentConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "configs", Name: "mine"}}
	want := []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "c1", Name: fleet.AddOnClusterProxy}}}
	if diff := cmp.Diff(want, New(c, Options{}).configuredBy(t.Context(), changed)); diff != "" {
		t.Error(diff)
	}
	if read != 2 {
		t.Errorf("%d add-ons are read, want the 2 with the configuration", read)
	}
}
