// Package managedclusteraddons reads ManagedClusterAddOns of a hub: where add-ons are installed.
package managedclusteraddons

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// Resource is that of ManagedClusterAddOns.
var Resource = addonv1alpha1.GroupVersion.WithResource("managedclusteraddons")

var kind = addonv1alpha1.GroupVersion.WithKind("ManagedClusterAddOn")

// List lists the installations of add-ons on a cluster, on all clusters if it is empty.
func List(ctx context.Context, hub *hubapi.Hub, cluster string) (*addonv1alpha1.ManagedClusterAddOnList, error) {
	list := &addonv1alpha1.ManagedClusterAddOnList{}
	err := hub.Client(Resource).Namespace(cluster).ListAs(ctx, kind, metav1.ListOptions{}, list)
	return list, hub.Explain("list the add-ons of clusters", err)
}
