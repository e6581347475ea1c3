package hubapi

import (
	"context"

	"k8s.io/client-go/util/retry"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

const manifestWorks = "manifestworks"

// Works lists the ManifestWorks of a cluster, of all clusters if it is empty.
func (h *Hub) Works(ctx context.Context, cluster string) (*workv1.ManifestWorkList, error) {
	list := &workv1.ManifestWorkList{}
	err := h.works.Get().Namespace(cluster).Resource(manifestWorks).Do(ctx).Into(list)
	list.SetGroupVersionKind(workv1.GroupVersion.WithKind("ManifestWorkList"))
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(workv1.GroupVersion.WithKind("ManifestWork"))
		list.Items[i].ManagedFields = nil // as kubectl does: nobody reads them
	}
	return list, h.explain("list works", err)
}

// Work reads one ManifestWork.
func (h *Hub) Work(ctx context.Context, cluster, name string) (*workv1.ManifestWork, error) {
	work := &workv1.ManifestWork{}
	err := h.works.Get().Namespace(cluster).Resource(manifestWorks).Name(name).Do(ctx).Into(work)
	work.SetGroupVersionKind(workv1.GroupVersion.WithKind("ManifestWork"))
	work.ManagedFields = nil
	return work, h.explain("read work "+name+" of cluster "+cluster, err)
}

// CreateWork creates a ManifestWork in the cluster that its namespace names.
func (h *Hub) CreateWork(ctx context.Context, work *workv1.ManifestWork) error {
	err := h.works.Post().Namespace(work.Namespace).Resource(manifestWorks).Body(work).Do(ctx).Error()
	return h.explain("create work "+work.Name+" in cluster "+work.Namespace, err)
}

// UpdateWorkload replaces the manifests of a ManifestWork and leaves the rest of it as it is.
func (h *Hub) UpdateWorkload(ctx context.Context, cluster, name string, workload workv1.ManifestsTemplate) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		work := &workv1.ManifestWork{}
		if err := h.works.Get().Namespace(cluster).Resource(manifestWorks).Name(name).Do(ctx).Into(work); err != nil {
			return err
		}
		work.Spec.Workload = workload
		return h.works.Put().Namespace(cluster).Resource(manifestWorks).Name(name).Body(work).Do(ctx).Error()
	})
	return h.explain("update work "+name+" in cluster "+cluster, err)
}

// WaitForWork returns once the ManifestWork exists and is as wanted.
func (h *Hub) WaitForWork(ctx context.Context, cluster, name string, wanted func(*workv1.ManifestWork) bool) error {
	err := until(ctx, watched{client: h.works, resource: manifestWorks, namespace: cluster, name: name}, wanted)
	return h.explain("wait for work "+name+" of cluster "+cluster, err)
}
