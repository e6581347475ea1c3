package addons

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

var (
	clusterManagementAddOns = addonv1alpha1.GroupVersion.WithResource("clustermanagementaddons")
	addOnTemplates          = addonv1alpha1.GroupVersion.WithResource("addontemplates")
)

// catalogueAddOns lists the add-ons that can be installed on clusters.
func catalogueAddOns(ctx context.Context, hub *hubapi.Hub) ([]addonv1alpha1.ClusterManagementAddOn, error) {
	list := &addonv1alpha1.ClusterManagementAddOnList{}
	err := hub.Client(clusterManagementAddOns).List(ctx, metav1.ListOptions{}, list)
	return list.Items, hub.Explain("list add-ons", err)
}

// catalogueAddOn reads one ClusterManagementAddOn.
func catalogueAddOn(ctx context.Context, hub *hubapi.Hub, name string) (*addonv1alpha1.ClusterManagementAddOn, error) {
	addOn := &addonv1alpha1.ClusterManagementAddOn{}
	err := hub.Client(clusterManagementAddOns).Get(ctx, name, addOn)
	return addOn, hub.Explain("read add-on "+name, err)
}

// createCatalogueAddOn creates a ClusterManagementAddOn.
func createCatalogueAddOn(ctx context.Context, hub *hubapi.Hub, addOn *addonv1alpha1.ClusterManagementAddOn) error {
	err := hub.Client(clusterManagementAddOns).Create(ctx, addOn, nil)
	return hub.Explain("create ClusterManagementAddon "+addOn.Name, err)
}

// updateCatalogueAddOn changes a ClusterManagementAddOn and leaves the rest of it as it is.
func updateCatalogueAddOn(ctx context.Context, hub *hubapi.Hub, name string, change func(*addonv1alpha1.ClusterManagementAddOn)) error {
	err := hubapi.Change(ctx, hub.Client(clusterManagementAddOns), name, func(live *addonv1alpha1.ClusterManagementAddOn) (bool, error) {
		change(live)
		return true, nil
	})
	return hub.Explain("update ClusterManagementAddon "+name, err)
}

// addOnTemplate reads one AddOnTemplate.
func addOnTemplate(ctx context.Context, hub *hubapi.Hub, name string) (*addonv1alpha1.AddOnTemplate, error) {
	template := &addonv1alpha1.AddOnTemplate{}
	err := hub.Client(addOnTemplates).Get(ctx, name, template)
	return template, hub.Explain("read AddonTemplate "+name, err)
}

// createAddOnTemplate creates an AddOnTemplate.
func createAddOnTemplate(ctx context.Context, hub *hubapi.Hub, template *addonv1alpha1.AddOnTemplate) error {
	err := hub.Client(addOnTemplates).Create(ctx, template, nil)
	return hub.Explain("create AddonTemplate "+template.Name, err)
}

// updateAddOnTemplate changes an AddOnTemplate and leaves the rest of it as it is.
func updateAddOnTemplate(ctx context.Context, hub *hubapi.Hub, name string, change func(*addonv1alpha1.AddOnTemplate)) error {
	err := hubapi.Change(ctx, hub.Client(addOnTemplates), name, func(live *addonv1alpha1.AddOnTemplate) (bool, error) {
		change(live)
		return true, nil
	})
	return hub.Explain("update AddonTemplate "+name, err)
}
