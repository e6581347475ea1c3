package hubapi

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	managedClusterSets        = "managedclustersets"
	managedClusterSetBindings = "managedclustersetbindings"
)

var (
	clusterSetKind     = clusterv1beta2.GroupVersion.WithKind("ManagedClusterSet")
	clusterSetListKind = clusterv1beta2.GroupVersion.WithKind("ManagedClusterSetList")
)

// ClusterSets lists the cluster sets.
func (h *Hub) ClusterSets(ctx context.Context) (*clusterv1beta2.ManagedClusterSetList, error) {
	list := &clusterv1beta2.ManagedClusterSetList{}
	err := h.sets.Get().Resource(managedClusterSets).Do(ctx).Into(list)
	list.SetGroupVersionKind(clusterSetListKind)
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(clusterSetKind)
		list.Items[i].ManagedFields = nil // as kubectl does: nobody reads them
	}
	return list, h.explain("list cluster sets", err)
}

// ClusterSet reads one cluster set.
func (h *Hub) ClusterSet(ctx context.Context, name string) (*clusterv1beta2.ManagedClusterSet, error) {
	set := &clusterv1beta2.ManagedClusterSet{}
	err := h.sets.Get().Resource(managedClusterSets).Name(name).Do(ctx).Into(set)
	set.SetGroupVersionKind(clusterSetKind)
	set.ManagedFields = nil
	return set, h.explain("read cluster set "+name, err)
}

// CreateClusterSet creates a cluster set.
func (h *Hub) CreateClusterSet(ctx context.Context, set *clusterv1beta2.ManagedClusterSet) error {
	err := h.sets.Post().Resource(managedClusterSets).Body(set).Do(ctx).Error()
	return h.explain("create cluster set "+set.Name, err)
}

// DeleteClusterSet deletes a cluster set and returns once it is gone.
func (h *Hub) DeleteClusterSet(ctx context.Context, name string) error {
	err := h.sets.Delete().Resource(managedClusterSets).Name(name).Do(ctx).Error()
	if err == nil {
		gone := watched{client: h.sets, resource: managedClusterSets, name: name}
		err = untilNone(ctx, gone, func(*clusterv1beta2.ManagedClusterSet) bool { return true })
	}
	return h.explain("delete cluster set "+name, err)
}

// AddManagedNamespaces makes the clusters of a set have some more namespaces, and returns those that it did not ask for
// before.
func (h *Hub) AddManagedNamespaces(ctx context.Context, name string, namespaces []string) (added []string, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		set := &clusterv1beta2.ManagedClusterSet{}
		if err := h.sets.Get().Resource(managedClusterSets).Name(name).Do(ctx).Into(set); err != nil {
			return err
		}
		added = nil
		has := map[string]bool{}
		for _, namespace := range set.Spec.ManagedNamespaces {
			has[namespace.Name] = true
		}
		for _, namespace := range namespaces {
			if !has[namespace] {
				has[namespace] = true
				added = append(added, namespace)
				set.Spec.ManagedNamespaces = append(set.Spec.ManagedNamespaces, clusterv1beta2.ManagedNamespaceConfig{Name: namespace})
			}
		}
		if len(added) == 0 {
			return nil
		}
		return h.sets.Put().Resource(managedClusterSets).Name(name).Body(set).Do(ctx).Error()
	})
	return added, h.explain("add namespaces to cluster set "+name, err)
}

// PutClusterIntoSet labels a cluster with the one exclusive set it is a member of.
func (h *Hub) PutClusterIntoSet(ctx context.Context, cluster, set string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{fleet.LabelClusterSet: set}}})
	if err != nil {
		return err
	}
	err = h.clusters.Patch(types.MergePatchType).Resource(managedClusters).Name(cluster).Body(patch).Do(ctx).Error()
	return h.explain("put cluster "+cluster+" into cluster set "+set, err)
}

// ClusterSetBindings lists the bindings of cluster sets in all namespaces.
func (h *Hub) ClusterSetBindings(ctx context.Context) (*clusterv1beta2.ManagedClusterSetBindingList, error) {
	list := &clusterv1beta2.ManagedClusterSetBindingList{}
	err := h.sets.Get().Resource(managedClusterSetBindings).Do(ctx).Into(list)
	return list, h.explain("list the bindings of cluster sets", err)
}

// CheckBinding fails with NotFound when a set is not bound to a namespace.
func (h *Hub) CheckBinding(ctx context.Context, set, namespace string) error {
	err := h.sets.Get().Namespace(namespace).Resource(managedClusterSetBindings).Name(set).Do(ctx).Error()
	return h.explain("look for the binding of cluster set "+set+" to namespace "+namespace, err)
}

// BindClusterSet lets a namespace place on the clusters of a set.
func (h *Hub) BindClusterSet(ctx context.Context, binding *clusterv1beta2.ManagedClusterSetBinding) error {
	err := h.sets.Post().Namespace(binding.Namespace).Resource(managedClusterSetBindings).Body(binding).Do(ctx).Error()
	return h.explain("bind cluster set "+binding.Name+" to namespace "+binding.Namespace, err)
}

// UnbindClusterSet takes back what BindClusterSet did.
func (h *Hub) UnbindClusterSet(ctx context.Context, set, namespace string) error {
	err := h.sets.Delete().Namespace(namespace).Resource(managedClusterSetBindings).Name(set).Do(ctx).Error()
	return h.explain("unbind cluster set "+set+" from namespace "+namespace, err)
}

// HasNamespace tells whether the hub has a namespace.
func (h *Hub) HasNamespace(ctx context.Context, name string) (bool, error) {
	err := h.core.Get().Resource("namespaces").Name(name).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, h.explain("look for namespace "+name, err)
}

// Namespaces are the names of the namespaces of the hub.
func (h *Hub) Namespaces(ctx context.Context) ([]string, error) {
	list := &corev1.NamespaceList{}
	err := h.core.Get().Resource("namespaces").Do(ctx).Into(list)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, h.explain("list namespaces", err)
}
