package hubapi

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
)

var (
	clusterManagementAddOns = addonv1alpha1.GroupVersion.WithResource("clustermanagementaddons")
	managedClusterAddOns    = addonv1alpha1.GroupVersion.WithResource("managedclusteraddons")
	addOnTemplates          = addonv1alpha1.GroupVersion.WithResource("addontemplates")
)

var (
	managedAddOnKind     = addonv1alpha1.GroupVersion.WithKind("ManagedClusterAddOn")
	managedAddOnListKind = addonv1alpha1.GroupVersion.WithKind("ManagedClusterAddOnList")
)

// CatalogueAddOns lists the add-ons that can be installed on clusters.
func (h *Hub) CatalogueAddOns(ctx context.Context) ([]addonv1alpha1.ClusterManagementAddOn, error) {
	list := &addonv1alpha1.ClusterManagementAddOnList{}
	err := h.Client(clusterManagementAddOns).List(ctx, metav1.ListOptions{}, list)
	return list.Items, h.Explain("list add-ons", err)
}

// CatalogueAddOn reads what there is to know of an add-on in addition to its installations.
func (h *Hub) CatalogueAddOn(ctx context.Context, name string) (*addonv1alpha1.ClusterManagementAddOn, error) {
	addOn := &addonv1alpha1.ClusterManagementAddOn{}
	err := h.Client(clusterManagementAddOns).Get(ctx, name, addOn)
	return addOn, h.Explain("read add-on "+name, err)
}

// CreateCatalogueAddOn makes an add-on known to the hub.
func (h *Hub) CreateCatalogueAddOn(ctx context.Context, addOn *addonv1alpha1.ClusterManagementAddOn) error {
	err := h.Client(clusterManagementAddOns).Create(ctx, addOn, nil)
	return h.Explain("create ClusterManagementAddon "+addOn.Name, err)
}

// UpdateCatalogueAddOn changes a ClusterManagementAddOn and leaves the rest of it as it is.
func (h *Hub) UpdateCatalogueAddOn(ctx context.Context, name string, change func(*addonv1alpha1.ClusterManagementAddOn)) error {
	err := Change(ctx, h.Client(clusterManagementAddOns), name, func(live *addonv1alpha1.ClusterManagementAddOn) (bool, error) {
		change(live)
		return true, nil
	})
	return h.Explain("update ClusterManagementAddon "+name, err)
}

// AddOnTemplate reads one AddOnTemplate.
func (h *Hub) AddOnTemplate(ctx context.Context, name string) (*addonv1alpha1.AddOnTemplate, error) {
	template := &addonv1alpha1.AddOnTemplate{}
	err := h.Client(addOnTemplates).Get(ctx, name, template)
	return template, h.Explain("read AddonTemplate "+name, err)
}

// CreateAddOnTemplate creates an AddOnTemplate.
func (h *Hub) CreateAddOnTemplate(ctx context.Context, template *addonv1alpha1.AddOnTemplate) error {
	err := h.Client(addOnTemplates).Create(ctx, template, nil)
	return h.Explain("create AddonTemplate "+template.Name, err)
}

// UpdateAddOnTemplate changes an AddOnTemplate and leaves the rest of it as it is.
func (h *Hub) UpdateAddOnTemplate(ctx context.Context, name string, change func(*addonv1alpha1.AddOnTemplate)) error {
	err := Change(ctx, h.Client(addOnTemplates), name, func(live *addonv1alpha1.AddOnTemplate) (bool, error) {
		change(live)
		return true, nil
	})
	return h.Explain("update AddonTemplate "+name, err)
}

// InstalledAddOns lists the installations of add-ons on a cluster, on all clusters if it is empty.
func (h *Hub) InstalledAddOns(ctx context.Context, cluster string) (*addonv1alpha1.ManagedClusterAddOnList, error) {
	list := &addonv1alpha1.ManagedClusterAddOnList{}
	err := h.Client(managedClusterAddOns).Namespace(cluster).List(ctx, metav1.ListOptions{}, list)
	list.SetGroupVersionKind(managedAddOnListKind)
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(managedAddOnKind)
		list.Items[i].ManagedFields = nil // as kubectl does: nobody reads them
	}
	return list, h.Explain("list the add-ons of clusters", err)
}

// Installations lists the installations of an add-on, by the names of the clusters.
func (h *Hub) Installations(ctx context.Context, name string) (map[string]*addonv1alpha1.ManagedClusterAddOn, error) {
	list := &addonv1alpha1.ManagedClusterAddOnList{}
	err := h.Client(managedClusterAddOns).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name}, list)
	on := map[string]*addonv1alpha1.ManagedClusterAddOn{}
	for i := range list.Items {
		on[list.Items[i].Namespace] = &list.Items[i]
	}
	return on, h.Explain("list where add-on "+name+" is installed", err)
}

// InstallAddOn installs an add-on on the cluster that its namespace names, or makes an installation what it should be. It is applied by
// the server: what this program has set before, and does not set now, goes; what others have set stays, but for the list of
// configurations, which is replaced as a whole if there is one now.
func (h *Hub) InstallAddOn(ctx context.Context, addOn *addonv1alpha1.ManagedClusterAddOn) error {
	content, err := json.Marshal(addOn)
	if err != nil {
		return err
	}
	err = h.Client(managedClusterAddOns).Namespace(addOn.Namespace).Apply(ctx, addOn.Name, content)
	return h.Explain("deploy add-on "+addOn.Name+" in managed cluster "+addOn.Namespace, err)
}

// UninstallAddOn takes an add-on off a cluster. It tells whether it was there.
func (h *Hub) UninstallAddOn(ctx context.Context, cluster, name string) (found bool, err error) {
	err = h.Client(managedClusterAddOns).Namespace(cluster).Delete(ctx, name)
	if apierrors.IsNotFound(err) && !NotServed(err) {
		return false, nil
	}
	return err == nil, h.Explain("undeploy add-on "+name+" in managed cluster "+cluster, err)
}

// HasClusterRole tells whether the hub has a ClusterRole.
func (h *Hub) HasClusterRole(ctx context.Context, name string) (bool, error) {
	err := h.Raw().Get().AbsPath("/apis/rbac.authorization.k8s.io/v1/clusterroles", name).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, h.Explain("look for ClusterRole "+name, err)
}
