package hubapi

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
)

const (
	clusterManagementAddOns = "clustermanagementaddons"
	managedClusterAddOns    = "managedclusteraddons"
	addOnTemplates          = "addontemplates"
)

var (
	managedAddOnKind     = addonv1alpha1.GroupVersion.WithKind("ManagedClusterAddOn")
	managedAddOnListKind = addonv1alpha1.GroupVersion.WithKind("ManagedClusterAddOnList")
)

// CatalogueAddOns lists the add-ons that can be installed on clusters.
func (h *Hub) CatalogueAddOns(ctx context.Context) ([]addonv1alpha1.ClusterManagementAddOn, error) {
	list := &addonv1alpha1.ClusterManagementAddOnList{}
	err := h.addOns.Get().Resource(clusterManagementAddOns).Do(ctx).Into(list)
	return list.Items, h.explain("list add-ons", err)
}

// CatalogueAddOn reads what there is to know of an add-on in addition to its installations.
func (h *Hub) CatalogueAddOn(ctx context.Context, name string) (*addonv1alpha1.ClusterManagementAddOn, error) {
	addOn := &addonv1alpha1.ClusterManagementAddOn{}
	err := h.addOns.Get().Resource(clusterManagementAddOns).Name(name).Do(ctx).Into(addOn)
	return addOn, h.explain("read add-on "+name, err)
}

// CreateCatalogueAddOn makes an add-on known to the hub.
func (h *Hub) CreateCatalogueAddOn(ctx context.Context, addOn *addonv1alpha1.ClusterManagementAddOn) error {
	err := h.addOns.Post().Resource(clusterManagementAddOns).Body(addOn).Do(ctx).Error()
	return h.explain("create ClusterManagementAddon "+addOn.Name, err)
}

// UpdateCatalogueAddOn changes a ClusterManagementAddOn and leaves the rest of it as it is.
func (h *Hub) UpdateCatalogueAddOn(ctx context.Context, name string, change func(*addonv1alpha1.ClusterManagementAddOn)) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live := &addonv1alpha1.ClusterManagementAddOn{}
		if err := h.addOns.Get().Resource(clusterManagementAddOns).Name(name).Do(ctx).Into(live); err != nil {
			return err
		}
		change(live)
		return h.addOns.Put().Resource(clusterManagementAddOns).Name(name).Body(live).Do(ctx).Error()
	})
	return h.explain("update ClusterManagementAddon "+name, err)
}

// AddOnTemplate reads one AddOnTemplate.
func (h *Hub) AddOnTemplate(ctx context.Context, name string) (*addonv1alpha1.AddOnTemplate, error) {
	template := &addonv1alpha1.AddOnTemplate{}
	err := h.addOns.Get().Resource(addOnTemplates).Name(name).Do(ctx).Into(template)
	return template, h.explain("read AddonTemplate "+name, err)
}

// CreateAddOnTemplate creates an AddOnTemplate.
func (h *Hub) CreateAddOnTemplate(ctx context.Context, template *addonv1alpha1.AddOnTemplate) error {
	err := h.addOns.Post().Resource(addOnTemplates).Body(template).Do(ctx).Error()
	return h.explain("create AddonTemplate "+template.Name, err)
}

// UpdateAddOnTemplate changes an AddOnTemplate and leaves the rest of it as it is.
func (h *Hub) UpdateAddOnTemplate(ctx context.Context, name string, change func(*addonv1alpha1.AddOnTemplate)) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live := &addonv1alpha1.AddOnTemplate{}
		if err := h.addOns.Get().Resource(addOnTemplates).Name(name).Do(ctx).Into(live); err != nil {
			return err
		}
		change(live)
		return h.addOns.Put().Resource(addOnTemplates).Name(name).Body(live).Do(ctx).Error()
	})
	return h.explain("update AddonTemplate "+name, err)
}

// InstalledAddOns lists the installations of add-ons on a cluster, on all clusters if it is empty.
func (h *Hub) InstalledAddOns(ctx context.Context, cluster string) (*addonv1alpha1.ManagedClusterAddOnList, error) {
	list := &addonv1alpha1.ManagedClusterAddOnList{}
	err := h.addOns.Get().Namespace(cluster).Resource(managedClusterAddOns).Do(ctx).Into(list)
	list.SetGroupVersionKind(managedAddOnListKind)
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(managedAddOnKind)
		list.Items[i].ManagedFields = nil // as kubectl does: nobody reads them
	}
	return list, h.explain("list the add-ons of clusters", err)
}

// Installations lists the installations of an add-on, by the names of the clusters.
func (h *Hub) Installations(ctx context.Context, name string) (map[string]*addonv1alpha1.ManagedClusterAddOn, error) {
	list := &addonv1alpha1.ManagedClusterAddOnList{}
	err := h.addOns.Get().Resource(managedClusterAddOns).
		VersionedParams(&metav1.ListOptions{FieldSelector: "metadata.name=" + name}, metav1.ParameterCodec).Do(ctx).Into(list)
	on := map[string]*addonv1alpha1.ManagedClusterAddOn{}
	for i := range list.Items {
		on[list.Items[i].Namespace] = &list.Items[i]
	}
	return on, h.explain("list where add-on "+name+" is installed", err)
}

// InstallAddOn installs an add-on on the cluster that its namespace names, or makes an installation what it should be. It is applied by
// the server: what this program has set before, and does not set now, goes; what others have set stays, but for the list of
// configurations, which is replaced as a whole if there is one now.
func (h *Hub) InstallAddOn(ctx context.Context, addOn *addonv1alpha1.ManagedClusterAddOn) error {
	doing := "deploy add-on " + addOn.Name + " in managed cluster " + addOn.Namespace
	content, err := json.Marshal(addOn)
	if err != nil {
		return err
	}
	force := true
	err = h.addOns.Patch(types.ApplyPatchType).Namespace(addOn.Namespace).Resource(managedClusterAddOns).Name(addOn.Name).
		VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager, Force: &force}, metav1.ParameterCodec).Body(content).Do(ctx).Error()
	return h.explain(doing, err)
}

// UninstallAddOn takes an add-on off a cluster. It tells whether it was there.
func (h *Hub) UninstallAddOn(ctx context.Context, cluster, name string) (found bool, err error) {
	err = h.addOns.Delete().Namespace(cluster).Resource(managedClusterAddOns).Name(name).Do(ctx).Error()
	if apierrors.IsNotFound(err) && !notServed(err) {
		return false, nil
	}
	return err == nil, h.explain("undeploy add-on "+name+" in managed cluster "+cluster, err)
}

// HasClusterRole tells whether the hub has a ClusterRole.
func (h *Hub) HasClusterRole(ctx context.Context, name string) (bool, error) {
	err := h.core.Get().AbsPath("/apis/rbac.authorization.k8s.io/v1/clusterroles", name).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, h.explain("look for ClusterRole "+name, err)
}
