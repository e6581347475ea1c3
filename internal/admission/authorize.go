package admission

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Authorizer reports whether the sender of the request has a permission, as a SubjectAccessReview does. An implementation binds it to the
// whole identity of the sender (name, uid, groups and extra), so that every authorizer behind it sees what it would see of a direct
// request. The reason may be empty.
type Authorizer func(ctx context.Context, attributes authorizationv1.ResourceAttributes) (allowed bool, reason string, err error)

// Sender is the user that sent the request under admission.
type Sender struct {
	// Name is the user name.
	Name string
	// Credential is the ID of the sender's credential; empty if it has none.
	Credential string
	// Groups are the groups of the user.
	Groups []string
	// Clusters are those as whose agent the sender acts; none for other users.
	Clusters []string
	// Behind are those that the sender acts for, as the agent of one or of an add-on there, or as a service account in its namespace.
	Behind []string
	// Joining reports whether the sender has a bootstrap credential.
	Joining bool
	// Authorize answers questions about this sender.
	Authorize Authorizer
}

// may returns nil if the sender has the permission, and otherwise why not. An authorizer that fails has not allowed anything.
func (s Sender) may(ctx context.Context, attributes authorizationv1.ResourceAttributes) error {
	allowed, reason, err := s.Authorize(ctx, attributes)
	switch {
	case err != nil:
		return fmt.Errorf("the permission to %s could not be checked: %w", describe(attributes), err)
	case allowed:
		return nil
	case reason != "":
		return fmt.Errorf("it needs the permission to %s (%s)", describe(attributes), reason)
	default:
		return fmt.Errorf("it needs the permission to %s", describe(attributes))
	}
}

// describe writes a permission as a Role names it.
func describe(attributes authorizationv1.ResourceAttributes) string {
	text := attributes.Verb + " " + groupResource(attributes).Resource
	if attributes.Group != "" {
		text += " of " + attributes.Group
	}
	if attributes.Name != "" {
		text += fmt.Sprintf(" named %q", attributes.Name)
	}
	if attributes.Namespace != "" {
		text += fmt.Sprintf(" in namespace %q", attributes.Namespace)
	}
	return text
}

// groupResource is the virtual resource of the permission, such as managedclusters/accept.
func groupResource(attributes authorizationv1.ResourceAttributes) schema.GroupResource {
	resource := attributes.Resource
	if attributes.Subresource != "" {
		resource += "/" + attributes.Subresource
	}
	return schema.GroupResource{Group: attributes.Group, Resource: resource}
}

// forbidden returns the 403 for a missing permission.
func forbidden(attributes authorizationv1.ResourceAttributes, err error) *apierrors.StatusError {
	return apierrors.NewForbidden(groupResource(attributes), attributes.Name, err)
}

// mostErrors is how many errors of one object are reported at once: enough to work with, few enough to read.
const mostErrors = 10

// badRequest returns the 400 with the errors, in its message and one by one as causes.
func badRequest(kind schema.GroupKind, name string, errs field.ErrorList) *apierrors.StatusError {
	shown := errs[:min(len(errs), mostErrors)]
	message := fmt.Sprintf("%s %q is invalid: %v", kind.Kind, name, shown.ToAggregate())
	if more := len(errs) - len(shown); more > 0 {
		message += fmt.Sprintf(", and %d more", more)
	}
	status := apierrors.NewBadRequest(message)
	details := &metav1.StatusDetails{Group: kind.Group, Kind: kind.Kind, Name: name}
	for _, err := range shown {
		details.Causes = append(details.Causes, metav1.StatusCause{
			Type:    metav1.CauseType(err.Type),
			Message: err.ErrorBody(),
			Field:   err.Field,
		})
	}
	status.ErrStatus.Details = details
	return status
}
