package hubapi

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

const manifestWorks = "manifestworks"

// Works lists the ManifestWorks of a cluster, of all clusters if it is empty, that a label selector matches; an empty one
// matches all.
func (h *Hub) Works(ctx context.Context, cluster, labelSelector string) (*workv1.ManifestWorkList, error) {
	list := &workv1.ManifestWorkList{}
	err := h.works.Get().Namespace(cluster).Resource(manifestWorks).
		VersionedParams(&metav1.ListOptions{LabelSelector: labelSelector}, metav1.ParameterCodec).Do(ctx).Into(list)
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

// CreateWork creates a ManifestWork in the cluster that its namespace names, and returns it as it is on the hub.
func (h *Hub) CreateWork(ctx context.Context, work *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	created := &workv1.ManifestWork{}
	err := h.works.Post().Namespace(work.Namespace).Resource(manifestWorks).Body(work).Do(ctx).Into(created)
	return created, h.explain("create work "+work.Name+" in cluster "+work.Namespace, err)
}

// UpdateWork changes a ManifestWork and leaves the rest of it as it is.
func (h *Hub) UpdateWork(ctx context.Context, cluster, name string, change func(*workv1.ManifestWork)) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		work := &workv1.ManifestWork{}
		if err := h.works.Get().Namespace(cluster).Resource(manifestWorks).Name(name).Do(ctx).Into(work); err != nil {
			return err
		}
		change(work)
		return h.works.Put().Namespace(cluster).Resource(manifestWorks).Name(name).Body(work).Do(ctx).Error()
	})
	return h.explain("update work "+name+" in cluster "+cluster, err)
}

// DeleteWork deletes a ManifestWork, which goes once its agent has taken its objects off the cluster.
func (h *Hub) DeleteWork(ctx context.Context, cluster, name string) error {
	err := h.works.Delete().Namespace(cluster).Resource(manifestWorks).Name(name).Do(ctx).Error()
	return h.explain("delete work "+name+" in cluster "+cluster, err)
}

// WaitForNoWork returns once a ManifestWork is gone.
func (h *Hub) WaitForNoWork(ctx context.Context, cluster, name string) error {
	gone := watched{client: h.works, resource: manifestWorks, namespace: cluster, name: name}
	err := untilNone(ctx, gone, func(*workv1.ManifestWork) bool { return true })
	return h.explain("delete work "+name+" in cluster "+cluster, err)
}

// ReleaseWork takes the finalizers off a ManifestWork, which lets it go whatever is left on the cluster. One that is gone
// already is no error.
func (h *Hub) ReleaseWork(ctx context.Context, cluster, name string) error {
	err := h.works.Patch(types.MergePatchType).Namespace(cluster).Resource(manifestWorks).Name(name).
		Body([]byte(`{"metadata":{"finalizers":null}}`)).Do(ctx).Error()
	if apierrors.IsNotFound(err) && !notServed(err) {
		return nil
	}
	return h.explain("remove the finalizers of work "+name+" in cluster "+cluster, err)
}

// WaitForWork returns once the ManifestWork exists and is as wanted.
func (h *Hub) WaitForWork(ctx context.Context, cluster, name string, wanted func(*workv1.ManifestWork) bool) error {
	err := until(ctx, watched{client: h.works, resource: manifestWorks, namespace: cluster, name: name}, wanted)
	return h.explain("wait for work "+name+" of cluster "+cluster, err)
}
