// Package manifestworks reads ManifestWorks of a hub, creates them and waits for them.
package manifestworks

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// Resource is that of ManifestWorks.
var Resource = workv1.GroupVersion.WithResource("manifestworks")

var kind = workv1.GroupVersion.WithKind("ManifestWork")

// List lists the ManifestWorks of a cluster, of all clusters if it is empty, that a label selector matches; an empty one
// matches all.
func List(ctx context.Context, hub *hubapi.Hub, cluster, labelSelector string) (*workv1.ManifestWorkList, error) {
	list := &workv1.ManifestWorkList{}
	err := hub.Client(Resource).Namespace(cluster).ListAs(ctx, kind, metav1.ListOptions{LabelSelector: labelSelector}, list)
	return list, hub.Explain("list works", err)
}

// Get reads one ManifestWork.
func Get(ctx context.Context, hub *hubapi.Hub, cluster, name string) (*workv1.ManifestWork, error) {
	work := &workv1.ManifestWork{}
	err := hub.Client(Resource).Namespace(cluster).GetAs(ctx, kind, name, work)
	return work, hub.Explain("read work "+name+" of cluster "+cluster, err)
}

// Create creates a ManifestWork in the cluster that its namespace names, and returns it as it is on the hub.
func Create(ctx context.Context, hub *hubapi.Hub, work *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	created := &workv1.ManifestWork{}
	err := hub.Client(Resource).Namespace(work.Namespace).Create(ctx, work, created)
	return created, hub.Explain("create work "+work.Name+" in cluster "+work.Namespace, err)
}

// Wait returns once the ManifestWork exists and meets the condition.
func Wait(ctx context.Context, hub *hubapi.Hub, cluster, name string, condition func(*workv1.ManifestWork) bool) error {
	err := hubapi.Until(ctx, hub.Client(Resource).Namespace(cluster), hubapi.Named(name), condition)
	return hub.Explain("wait for work "+name+" of cluster "+cluster, err)
}
