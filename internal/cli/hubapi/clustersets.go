package hubapi

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var (
	managedClusterSets        = clusterv1beta2.GroupVersion.WithResource("managedclustersets")
	managedClusterSetBindings = clusterv1beta2.GroupVersion.WithResource("managedclustersetbindings")
)

var (
	clusterSetKind     = clusterv1beta2.GroupVersion.WithKind("ManagedClusterSet")
	clusterSetListKind = clusterv1beta2.GroupVersion.WithKind("ManagedClusterSetList")
)

// ClusterSets lists the cluster sets.
func (h *Hub) ClusterSets(ctx context.Context) (*clusterv1beta2.ManagedClusterSetList, error) {
	list := &clusterv1beta2.ManagedClusterSetList{}
	err := h.Client(managedClusterSets).List(ctx, metav1.ListOptions{}, list)
	list.SetGroupVersionKind(clusterSetListKind)
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(clusterSetKind)
		list.Items[i].ManagedFields = nil // as kubectl does: nobody reads them
	}
	return list, h.Explain("list cluster sets", err)
}

// ClusterSet reads one cluster set.
func (h *Hub) ClusterSet(ctx context.Context, name string) (*clusterv1beta2.ManagedClusterSet, error) {
	set := &clusterv1beta2.ManagedClusterSet{}
	err := h.Client(managedClusterSets).Get(ctx, name, set)
	set.SetGroupVersionKind(clusterSetKind)
	set.ManagedFields = nil
	return set, h.Explain("read cluster set "+name, err)
}

// CreateClusterSet creates a cluster set.
func (h *Hub) CreateClusterSet(ctx context.Context, set *clusterv1beta2.ManagedClusterSet) error {
	err := h.Client(managedClusterSets).Create(ctx, set, nil)
	return h.Explain("create cluster set "+set.Name, err)
}

// DeleteClusterSet deletes a cluster set and returns once it is gone.
func (h *Hub) DeleteClusterSet(ctx context.Context, name string) error {
	err := h.Client(managedClusterSets).Delete(ctx, name)
	if err == nil {
		err = UntilNone(ctx, h.Client(managedClusterSets), Named(name), func(*clusterv1beta2.ManagedClusterSet) bool { return true })
	}
	return h.Explain("delete cluster set "+name, err)
}

// AddManagedNamespaces makes the clusters of a set have some more namespaces, and returns those that it did not ask for
// before.
func (h *Hub) AddManagedNamespaces(ctx context.Context, name string, namespaces []string) (added []string, err error) {
	err = Change(ctx, h.Client(managedClusterSets), name, func(set *clusterv1beta2.ManagedClusterSet) (bool, error) {
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
		return len(added) > 0, nil
	})
	return added, h.Explain("add namespaces to cluster set "+name, err)
}

// PutClusterIntoSet labels a cluster with the one exclusive set it is a member of.
func (h *Hub) PutClusterIntoSet(ctx context.Context, cluster, set string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{fleet.LabelClusterSet: set}}})
	if err != nil {
		return err
	}
	err = h.Client(clusterv1.GroupVersion.WithResource(fleet.ResourceManagedClusters)).MergePatch(ctx, cluster, patch)
	return h.Explain("put cluster "+cluster+" into cluster set "+set, err)
}

// ClusterSetBindings lists the bindings of cluster sets in all namespaces.
func (h *Hub) ClusterSetBindings(ctx context.Context) (*clusterv1beta2.ManagedClusterSetBindingList, error) {
	list := &clusterv1beta2.ManagedClusterSetBindingList{}
	err := h.Client(managedClusterSetBindings).List(ctx, metav1.ListOptions{}, list)
	return list, h.Explain("list the bindings of cluster sets", err)
}

// CheckBinding fails with NotFound when a set is not bound to a namespace.
func (h *Hub) CheckBinding(ctx context.Context, set, namespace string) error {
	err := h.Client(managedClusterSetBindings).Namespace(namespace).Get(ctx, set, nil)
	return h.Explain("look for the binding of cluster set "+set+" to namespace "+namespace, err)
}

// BindClusterSet lets a namespace place on the clusters of a set.
func (h *Hub) BindClusterSet(ctx context.Context, binding *clusterv1beta2.ManagedClusterSetBinding) error {
	err := h.Client(managedClusterSetBindings).Namespace(binding.Namespace).Create(ctx, binding, nil)
	return h.Explain("bind cluster set "+binding.Name+" to namespace "+binding.Namespace, err)
}

// UnbindClusterSet takes back what BindClusterSet did.
func (h *Hub) UnbindClusterSet(ctx context.Context, set, namespace string) error {
	err := h.Client(managedClusterSetBindings).Namespace(namespace).Delete(ctx, set)
	return h.Explain("unbind cluster set "+set+" from namespace "+namespace, err)
}

// HasNamespace tells whether the hub has a namespace.
func (h *Hub) HasNamespace(ctx context.Context, name string) (bool, error) {
	err := h.Client(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, name, nil)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, h.Explain("look for namespace "+name, err)
}

// Namespaces are the names of the namespaces of the hub.
func (h *Hub) Namespaces(ctx context.Context) ([]string, error) {
	list := &corev1.NamespaceList{}
	err := h.Client(corev1.SchemeGroupVersion.WithResource("namespaces")).List(ctx, metav1.ListOptions{}, list)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, h.Explain("list namespaces", err)
}
