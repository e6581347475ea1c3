package hubapi

import (
	"context"

	"k8s.io/client-go/util/retry"

	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
)

const manifestWorkReplicaSets = "manifestworkreplicasets"

// ReplicaSet reads one ManifestWorkReplicaSet.
func (h *Hub) ReplicaSet(ctx context.Context, namespace, name string) (*workv1alpha1.ManifestWorkReplicaSet, error) {
	set := &workv1alpha1.ManifestWorkReplicaSet{}
	err := h.replicaSets.Get().Namespace(namespace).Resource(manifestWorkReplicaSets).Name(name).Do(ctx).Into(set)
	return set, h.explain("read ManifestWorkReplicaSet "+name+" of namespace "+namespace, err)
}

// CreateReplicaSet creates a ManifestWorkReplicaSet.
func (h *Hub) CreateReplicaSet(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet) error {
	err := h.replicaSets.Post().Namespace(set.Namespace).Resource(manifestWorkReplicaSets).Body(set).Do(ctx).Error()
	return h.explain("create ManifestWorkReplicaSet "+set.Name+" in namespace "+set.Namespace, err)
}

// UpdateReplicaSet changes a ManifestWorkReplicaSet and leaves the rest of it as it is.
func (h *Hub) UpdateReplicaSet(ctx context.Context, namespace, name string, change func(*workv1alpha1.ManifestWorkReplicaSet)) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		set := &workv1alpha1.ManifestWorkReplicaSet{}
		if err := h.replicaSets.Get().Namespace(namespace).Resource(manifestWorkReplicaSets).Name(name).Do(ctx).Into(set); err != nil {
			return err
		}
		change(set)
		return h.replicaSets.Put().Namespace(namespace).Resource(manifestWorkReplicaSets).Name(name).Body(set).Do(ctx).Error()
	})
	return h.explain("update ManifestWorkReplicaSet "+name+" in namespace "+namespace, err)
}
