package admission

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// validateHosting asks whoever names a hosting cluster for the permission to create works there: the manager of the add-on does
// that in its own name, which may in the namespaces of all clusters. A ManagedCluster is asked about as a ManagedClusterAddOn is, for its
// annotation is copied to all of its add-ons. What an update leaves alone is not asked about again.
func validateHosting(ctx context.Context, resource schema.GroupResource, object, old metav1.Object, sender Sender) error {
	hosting := object.GetAnnotations()[fleet.AnnotationHostingClusterName]
	if hosting == "" || old != nil && old.GetAnnotations()[fleet.AnnotationHostingClusterName] == hosting {
		return nil
	}
	err := sender.may(ctx, authorizationv1.ResourceAttributes{Group: workv1.GroupVersion.Group, Resource: "manifestworks", Verb: "create",
		Namespace: hosting})
	if err != nil {
		return apierrors.NewForbidden(resource, object.GetName(), fmt.Errorf("user %q cannot let the cluster %q host add-ons by %s: %w",
			sender.Name, hosting, field.NewPath("metadata", "annotations").Key(fleet.AnnotationHostingClusterName), err))
	}
	return nil
}
