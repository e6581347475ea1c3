package installation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// grant applies the permissions of the add-on, and deletes those that it no longer has, even if the hub refuses others. Where that may
// pass, the former ones stay until the new ones are there.
func (r *reconciliation) grant(ctx context.Context) error {
	desired, err := r.permissions(ctx)
	if err != nil {
		return err
	}
	owner := client.ObjectKeyFromObject(r.addOn)
	existing, err := r.permissionsOf(ctx, owner)
	if err != nil {
		return err
	}
	var refused []error
	for _, permission := range desired {
		if err := r.apply(ctx, permission, existing[identify(permission)]); err != nil && !isRefused(err) {
			return err
		} else if err != nil {
			refused = append(refused, err)
		}
		delete(existing, identify(permission))
	}
	return errors.Join(append(refused, r.revoke(ctx, existing))...)
}

// errOfOthers is about a permission whose name another object has that is not being deleted.
var errOfOthers = errors.New("neither labels nor an owner make it one of the add-on")

// isRefused reports whether an error does not pass by itself: the hub has not the right, does not accept what is written, or has an object
// of others of that name.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || errors.Is(err, errOfOthers)
}

// permissions returns the permissions of the add-on, with the labels and owner references that this controller needs.
func (r *reconciliation) permissions(ctx context.Context) ([]client.Object, error) {
	if r.options.Registration == nil || r.options.Registration.Permissions == nil {
		return nil, nil
	}
	permissions, err := r.options.Registration.Permissions(ctx, r.installation)
	if err != nil {
		return nil, fmt.Errorf("find out the permissions of the agent: %w", err)
	}
	complete := make([]client.Object, 0, len(permissions))
	for _, permission := range permissions {
		o, err := r.own(permission)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(complete, func(other client.Object) bool { return identify(other) == identify(o) }) {
			return nil, fmt.Errorf("the permissions of the agent have %s twice: give each a name of its own", identify(o))
		}
		complete = append(complete, o)
	}
	return complete, nil
}

// own returns a copy of a permission with the labels of the add-on. In the namespace of the cluster, the add-on owns it.
func (r *reconciliation) own(permission client.Object) (client.Object, error) {
	o, namespaced, err := copyOf(permission)
	if err != nil {
		return nil, err
	}
	if namespaced && o.GetNamespace() == "" {
		o.SetNamespace(r.addOn.Namespace)
	}
	labels := maps.Clone(o.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[fleet.LabelAddOnName], labels[fleet.LabelClusterName], labels[fleet.LabelAddOnManager] = r.addOn.Name, r.addOn.Namespace, r.Manager
	o.SetLabels(labels)
	if o.GetNamespace() == r.addOn.Namespace {
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(r.addOn,
			addonv1beta1.GroupVersion.WithKind("ManagedClusterAddOn"))})
	}
	return o, nil
}

func copyOf(permission client.Object) (o client.Object, namespaced bool, err error) {
	switch permission := permission.(type) {
	case *rbacv1.Role:
		return permission.DeepCopy(), true, nil
	case *rbacv1.RoleBinding:
		return permission.DeepCopy(), true, nil
	case *rbacv1.ClusterRole:
		return permission.DeepCopy(), false, nil
	case *rbacv1.ClusterRoleBinding:
		return permission.DeepCopy(), false, nil
	default:
		return nil, false, fmt.Errorf("a permission of the agent is a %T: use *Role, *RoleBinding, *ClusterRole or *ClusterRoleBinding of "+
			"k8s.io/api/rbac/v1", permission)
	}
}

// apply creates or updates a permission; existing is nil if the manager has applied none.
func (r *reconciliation) apply(ctx context.Context, desired, existing client.Object) error {
	if existing == nil {
		err := r.create(ctx, desired)
		if apierrors.IsAlreadyExists(err) {
			return r.adopt(ctx, desired, err)
		}
		return err
	}
	return r.update(ctx, existing, desired, take)
}

func (r *reconciliation) create(ctx context.Context, desired client.Object) error {
	if err := r.client.Create(ctx, desired); err != nil {
		return fmt.Errorf("create %s: %w", identify(desired), withRightToBind(err, desired))
	}
	return nil
}

// update has change make a permission what is desired. The role of a binding cannot be changed, so the binding is replaced. Later reads
// wait for the new object, not for the deletion of the old one: a watch that was interrupted shows the two as one update, without a
// deletion to wait for.
func (r *reconciliation) update(ctx context.Context, existing, desired client.Object, change func(o, desired client.Object)) error {
	if !sameRoleRef(existing, desired) {
		if err := r.revoke(ctx, map[string]client.Object{identify(existing): existing}, client.DisableReadYourWritesConsistency); err != nil {
			return err
		}
		return r.create(ctx, desired)
	}
	before, ok := existing.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%s is no object of the API", identify(desired))
	}
	change(existing, desired)
	_, err := patch.Object(ctx, r.client, existing, before)
	return withRightToBind(err, desired)
}

// adopt makes a permission of the add-on that another manager has left one of this manager. refusal is why it could not be created.
func (r *reconciliation) adopt(ctx context.Context, desired client.Object, refusal error) error {
	left := emptyLike(desired)
	err := r.live.Get(ctx, client.ObjectKeyFromObject(desired), left) // the cache may have only those of this manager
	switch {
	case apierrors.IsNotFound(err), err == nil && !left.GetDeletionTimestamp().IsZero():
		return refusal // that passes
	case err != nil:
		return fmt.Errorf("read %s, which exists: %w", identify(desired), err)
	case !r.isOfAddOn(left):
		return fmt.Errorf("%w, and %w %s on the cluster %s: give the permission a name that has both in it, or delete that object if nobody "+
			"needs it", refusal, errOfOthers, r.addOn.Name, r.addOn.Namespace)
	}
	return r.update(ctx, left, desired, replace)
}

func emptyLike(permission client.Object) client.Object {
	switch permission.(type) {
	case *rbacv1.Role:
		return &rbacv1.Role{}
	case *rbacv1.RoleBinding:
		return &rbacv1.RoleBinding{}
	case *rbacv1.ClusterRole:
		return &rbacv1.ClusterRole{}
	default:
		return &rbacv1.ClusterRoleBinding{}
	}
}

// isOfAddOn reports whether a permission is of this add-on, whichever manager has applied it.
func (r *reconciliation) isOfAddOn(permission client.Object) bool {
	return keyOf(permission) == client.ObjectKeyFromObject(r.addOn) ||
		slices.ContainsFunc(permission.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == r.addOn.UID })
}

// withRightToBind adds the right that lets the manager make a binding to the error of one that it is not allowed to make.
func withRightToBind(err error, binding client.Object) error {
	ref := roleRef(binding)
	if !apierrors.IsForbidden(err) || ref.Name == "" {
		return err
	}
	resource, where := "clusterroles", "by a ClusterRoleBinding"
	if ref.Kind == "Role" {
		resource, where = "roles", "in the namespace "+binding.GetNamespace()
	}
	return fmt.Errorf("%w. Give the manager of the add-on a ClusterRole with the verb bind on %s of %s named %q, %s; "+
		"that of a hub in a cluster is the ServiceAccount %s, by default in the namespace %s",
		err, resource, rbacv1.GroupName, ref.Name, where, fleet.ServiceAccountAddOnManager, fleet.NamespaceHub)
}

// replace makes o what is desired, and keeps nothing: what is adopted may be made by anybody, and with a label that aggregates roles, its
// author would get the rights of the add-on by it.
func replace(o, desired client.Object) {
	o.SetLabels(map[string]string{})
	o.SetAnnotations(nil)
	o.SetFinalizers(nil)
	take(o, desired)
}

// take copies the desired content into o, which is of the same kind, and keeps labels and annotations of other writers, but not those of
// RBAC: anybody may have made o with the labels of this manager.
func take(o, desired client.Object) {
	o.SetLabels(withoutRBAC(o.GetLabels(), desired.GetLabels()))
	o.SetAnnotations(withoutRBAC(o.GetAnnotations(), desired.GetAnnotations()))
	o.SetOwnerReferences(desired.GetOwnerReferences())
	switch desired := desired.(type) {
	case *rbacv1.Role:
		o.(*rbacv1.Role).Rules = desired.Rules
	case *rbacv1.RoleBinding:
		o.(*rbacv1.RoleBinding).Subjects = desired.Subjects
	case *rbacv1.ClusterRole:
		role := o.(*rbacv1.ClusterRole)
		role.Rules, role.AggregationRule = desired.Rules, desired.AggregationRule
	case *rbacv1.ClusterRoleBinding:
		o.(*rbacv1.ClusterRoleBinding).Subjects = desired.Subjects
	}
}

// withoutRBAC are the existing labels or annotations, with the desired ones, and without others of RBAC, such as those that aggregate
// roles.
func withoutRBAC(existing, desired map[string]string) map[string]string {
	merged := map[string]string{}
	maps.Copy(merged, existing)
	maps.DeleteFunc(merged, func(key, _ string) bool { return strings.HasPrefix(key, rbacv1.GroupName+"/") })
	maps.Copy(merged, desired)
	return merged
}

func sameRoleRef(a, b client.Object) bool {
	return equality.Semantic.DeepEqual(roleRef(a), roleRef(b))
}

func roleRef(o client.Object) (ref rbacv1.RoleRef) {
	switch o := o.(type) {
	case *rbacv1.RoleBinding:
		ref = o.RoleRef
	case *rbacv1.ClusterRoleBinding:
		ref = o.RoleRef
	}
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
	return ref
}

// withdraw deletes the permissions of an add-on that is gone or belongs to another manager. Those in the namespace of its cluster are
// garbage-collected with their owner; this is for the others, and for those that were left while no manager ran.
func (c *Controller) withdraw(ctx context.Context, addOn types.NamespacedName) error {
	left, err := c.permissionsOf(ctx, addOn)
	if err != nil {
		return err
	}
	return c.revoke(ctx, left)
}

// revoke deletes permissions. One that cannot be deleted does not keep the others.
func (c *Controller) revoke(ctx context.Context, permissions map[string]client.Object, options ...client.DeleteOption) error {
	var failed []error
	for _, name := range slices.Sorted(maps.Keys(permissions)) {
		uid := permissions[name].GetUID()
		err := c.client.Delete(ctx, permissions[name], append(options, client.Preconditions{UID: &uid})...)
		if client.IgnoreNotFound(err) != nil {
			failed = append(failed, fmt.Errorf("delete %s: %w", name, err))
		}
	}
	return errors.Join(failed...)
}

// permissionsOf returns the permissions that the manager has applied for an add-on, by their identify.
func (c *Controller) permissionsOf(ctx context.Context, addOn types.NamespacedName) (map[string]client.Object, error) {
	found := map[string]client.Object{}
	of := client.MatchingFields{indexOwner: addOn.String()}
	roles, bindings := &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}
	clusterRoles, clusterBindings := &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}
	for _, list := range []client.ObjectList{roles, bindings, clusterRoles, clusterBindings} {
		if err := c.client.List(ctx, list, of); err != nil {
			return nil, fmt.Errorf("list the permissions of the add-on %s: %w", addOn, err)
		}
	}
	for i := range roles.Items {
		found[identify(&roles.Items[i])] = &roles.Items[i]
	}
	for i := range bindings.Items {
		found[identify(&bindings.Items[i])] = &bindings.Items[i]
	}
	for i := range clusterRoles.Items {
		found[identify(&clusterRoles.Items[i])] = &clusterRoles.Items[i]
	}
	for i := range clusterBindings.Items {
		found[identify(&clusterBindings.Items[i])] = &clusterBindings.Items[i]
	}
	return found, nil
}

// identify names a permission, as a key of maps and in messages.
func identify(o client.Object) string {
	switch o.(type) {
	case *rbacv1.Role:
		return "Role " + o.GetNamespace() + "/" + o.GetName()
	case *rbacv1.RoleBinding:
		return "RoleBinding " + o.GetNamespace() + "/" + o.GetName()
	case *rbacv1.ClusterRole:
		return "ClusterRole " + o.GetName()
	default:
		return "ClusterRoleBinding " + o.GetName()
	}
}
