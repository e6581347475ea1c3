package admission

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var setBindingKind = clusterv1beta2.GroupVersion.WithKind("ManagedClusterSetBinding").GroupKind()

// ValidateManagedClusterSetBinding validates a binding that is created (old is nil) or updated. It
// fails with 400 when the binding is not named like its set, which also keeps the set from changing, and with 403 when
// the creator may not bind the set. The set need not exist.
func ValidateManagedClusterSetBinding(
	ctx context.Context, binding, old *clusterv1beta2.ManagedClusterSetBinding, sender Sender,
) error {
	set := binding.Spec.ClusterSet
	if binding.Name != set {
		return badRequest(setBindingKind, binding.Name, field.ErrorList{field.Invalid(field.NewPath("spec", "clusterSet"), set,
			fmt.Sprintf("the ManagedClusterSetBinding must have the same name as the target ManagedClusterSet: "+
				"to bind %q, create a ManagedClusterSetBinding named %q", set, set))})
	}
	if old != nil {
		return nil
	}
	bind := authorizationv1.ResourceAttributes{
		Group: clusterv1beta2.GroupVersion.Group, Resource: "managedclustersets", Subresource: fleet.SubresourceBind,
		Verb: "create", Name: set,
	}
	if err := sender.may(ctx, bind); err != nil {
		return forbidden(bind, fmt.Errorf("user %q is not allowed to bind cluster set %q: %w", sender.Name, set, err))
	}
	return nil
}
