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

// validateHosting checks that a sender that names a hosting cluster has the permission to create works there: the manager of the add-on
// creates them under its own identity, which has that right for all clusters. It also checks ManagedClusters, because their annotation
// is copied to all of their add-ons. An update is checked only for what it changes.
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
