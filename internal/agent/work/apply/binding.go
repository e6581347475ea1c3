package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
)

// An API server never changes the roleRef of a RoleBinding or ClusterRoleBinding. One that is to give another role is deleted and made
// anew, if works own it, and if the API server would take the new one. Until then, the old one stays.

// refusesRole reports whether a write was refused that gives a binding another role.
func refusesRole(err error, live, wanted *unstructured.Unstructured) bool {
	role := roleOf(wanted)
	return apierrors.IsInvalid(err) && role.Name != "" && role != roleOf(live)
}

// roleOf is the role that a binding gives. That of any other object has no name.
func roleOf(object *unstructured.Unstructured) rbacv1.RoleRef {
	if object.GroupVersionKind().Group != rbacv1.GroupName {
		return rbacv1.RoleRef{}
	}
	field := func(name string) string {
		value, _, _ := unstructured.NestedString(object.Object, "roleRef", name)
		return value
	}
	return rbacv1.RoleRef{APIGroup: cmp.Or(field("apiGroup"), rbacv1.GroupName), Kind: field("kind"), Name: field("name")}
}

// removeBinding deletes a binding for anew to be made in its place. refused is why it cannot be changed. A dry run only finds out whether
// anew can be made.
func (w *writer) removeBinding(ctx context.Context, t *task, live, anew *unstructured.Unstructured, refused error) error {
	if !t.owned || !slices.ContainsFunc(live.GetOwnerReferences(), tracker.IsWork) {
		return fmt.Errorf("its roleRef never changes, and it is not replaced, as it is not owned by a work: delete it on the cluster, or give "+
			"the manifest another name: %w", refused)
	}
	trial := metav1.CreateOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}}
	// That it exists is found out last.
	if _, err := w.resource.Create(ctx, anew, trial); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("try to make it anew, as its roleRef never changes: %w", err)
	}
	if len(w.dryRun) > 0 {
		return nil
	}
	err := w.resource.Delete(ctx, live.GetName(), metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: new(live.GetUID()), ResourceVersion: new(live.GetResourceVersion())},
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete it to make it anew, as its roleRef never changes: %w", err)
	}
	return w.ensureGone(ctx, t)
}

// ensureGone fails if an object that was deleted is still there, or there is another one: with a conflict, to begin again with that.
func (w *writer) ensureGone(ctx context.Context, t *task) error {
	live, err := w.get(ctx, t)
	if apierrors.IsNotFound(err) {
		t.presence, t.uid = conditions.Absent, ""
		return nil
	}
	if err == nil {
		err = apierrors.NewConflict(t.mapping.Resource.GroupResource(), live.GetName(), errors.New("there is another one of the name"))
	}
	return err
}

// withoutServerMetadata is an object as it can be made anew: without the metadata that the API server sets.
func withoutServerMetadata(object *unstructured.Unstructured) *unstructured.Unstructured {
	anew := object.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(anew.Object, "metadata", field)
	}
	return anew
}
