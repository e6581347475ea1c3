package accept

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"golang.org/x/sync/errgroup"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// admit creates everything that an accepted cluster has on the hub. What does not need the namespace is created at the same time. An
// API server lets only its administrators bind a role that does not exist yet.
func (c *Controller) admit(ctx context.Context, cluster string) error {
	first, firstCtx := errgroup.WithContext(ctx)
	first.Go(func() error { return c.ensureNamespace(firstCtx, cluster) })
	first.Go(func() error { return c.ensureClusterRole(firstCtx, cluster, acceptedRules(cluster)) })
	if err := first.Wait(); err != nil {
		return err
	}
	then, thenCtx := errgroup.WithContext(ctx)
	then.Go(func() error { return c.ensureClusterRoleBinding(thenCtx, cluster) })
	then.Go(func() error {
		if err := c.ensureLease(thenCtx, cluster); err != nil { // which the agent reads as soon as it may
			return err
		}
		return c.ensureRoleBinding(thenCtx, cluster, fleet.RegistrationRoleBinding(cluster), fleet.ClusterRoleRegistration)
	})
	then.Go(func() error {
		if err := c.ensureWorkRoleBinding(thenCtx, cluster); err != nil {
			return err
		}
		// Most clusters never had this role, and the cache knows that.
		if err := c.client.Get(thenCtx, client.ObjectKeyFromObject(remainingWorksRole(cluster)), &rbacv1.Role{}); err != nil {
			return client.IgnoreNotFound(err)
		}
		return c.deleteRemainingWorksRole(thenCtx, cluster)
	})
	return then.Wait()
}

// confine leaves a denied cluster no rights in its namespace except to finalize the works that exist then, by name: with list and watch
// it would see later ones. It returns false while there are such works.
func (c *Controller) confine(ctx context.Context, cluster string) (bool, error) {
	if err := c.deleteRegistrationRoleBinding(ctx, cluster); err != nil {
		return false, err
	}
	return c.confineToWorks(ctx, cluster)
}

func (c *Controller) confineToWorks(ctx context.Context, cluster string) (bool, error) {
	names, err := c.remainingNames(ctx, cluster)
	if err != nil {
		return false, err
	}
	if len(names) == 0 {
		return true, c.deleteRightsToWorks(ctx, cluster)
	}
	err = c.ensureRightsToRemainingWorks(ctx, cluster, names)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return false, nil // nothing can be created there any more, neither rights nor works
	}
	if err != nil {
		return false, err
	}
	return false, c.deleteFinalized(ctx, workRoleBinding(cluster))
}

// remainingNames returns the names of the works that a denied cluster may finalize: all that exist when its rights to works are revoked,
// and later those of them that are left. A new work of the same name does not count, unless it is created before the deletion of the old
// one is noticed.
func (c *Controller) remainingNames(ctx context.Context, cluster string) ([]string, error) {
	there, err := c.works(ctx, cluster)
	if err != nil || len(there) == 0 {
		return nil, err
	}
	unconfined := c.live.Get(ctx, client.ObjectKeyFromObject(workRoleBinding(cluster)), &rbacv1.RoleBinding{})
	if unconfined == nil {
		return there, nil
	}
	role := remainingWorksRole(cluster)
	if err := errors.Join(client.IgnoreNotFound(unconfined),
		client.IgnoreNotFound(c.live.Get(ctx, client.ObjectKeyFromObject(role), role))); err != nil {
		return nil, fmt.Errorf("read what cluster %s may do with its works: %w", cluster, err)
	}
	var known []string
	for _, rule := range role.Rules {
		known = append(known, rule.ResourceNames...)
	}
	return slices.DeleteFunc(there, func(name string) bool { return !slices.Contains(known, name) }), nil
}

// works returns the names of the works in the namespace of a cluster, in order.
func (c *Controller) works(ctx context.Context, cluster string) (names []string, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(workv1.GroupVersion.WithKind("ManifestWorkList"))
	err = c.live.List(ctx, list, client.InNamespace(cluster))
	if notServed(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the works of cluster %s: %w", cluster, err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names, nil
}

func (c *Controller) ensureRightsToRemainingWorks(ctx context.Context, cluster string, works []string) error {
	name := fleet.RemainingWorksRole(cluster)
	err := ensure(ctx, c, client.ObjectKey{Namespace: cluster, Name: name}, func(role *rbacv1.Role) {
		c.label(role, cluster)
		controllerutil.AddFinalizer(role, fleet.FinalizerManifestWorkCleanup)
		role.Rules = remainingWorksRules(works)
	})
	if err != nil {
		return err
	}
	return ensure(ctx, c, client.ObjectKey{Namespace: cluster, Name: name}, func(binding *rbacv1.RoleBinding) {
		c.label(binding, cluster)
		controllerutil.AddFinalizer(binding, fleet.FinalizerManifestWorkCleanup)
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}
		binding.Subjects = agents(cluster)
	})
}

// revokeWhenDrained leaves a cluster that is being deleted its right to works while there are any, by which its agent learns what to
// undo. A cluster that was denied gets that right back: admission lets no new works be created for it, and agents of other
// implementations find works only by listing them.
func (c *Controller) revokeWhenDrained(ctx context.Context, cluster string) (bool, error) {
	if err := c.deleteRegistrationRoleBinding(ctx, cluster); err != nil {
		return false, err
	}
	remain, err := c.remain(ctx, cluster, &workv1.ManifestWorkList{})
	if err != nil {
		return false, err
	}
	if !remain {
		return true, c.deleteRightsToWorks(ctx, cluster)
	}
	err = c.ensureWorkRoleBinding(ctx, cluster)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return false, nil // nothing can be created there any more; the rights stay as they are
	}
	if err != nil {
		return false, err
	}
	return false, c.deleteRemainingWorksRole(ctx, cluster)
}

// revokeAll revokes all rights of the agents of a cluster.
func (c *Controller) revokeAll(ctx context.Context, cluster string) error {
	return errors.Join(
		c.deleteRegistrationRoleBinding(ctx, cluster),
		c.deleteRightsToWorks(ctx, cluster),
		c.deleteClusterRole(ctx, cluster),
	)
}

// notServed reports by the error of a list whether the hub lacks the kind: it never had it, or its CRD has been deleted since this process
// started.
func notServed(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// remain reports whether the namespace of a cluster has objects of the list's kind.
func (c *Controller) remain(ctx context.Context, cluster string, list client.ObjectList) (bool, error) {
	err := c.live.List(ctx, list, client.InNamespace(cluster), client.Limit(1))
	if notServed(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list the %T of namespace %s: %w", list, cluster, err)
	}
	return meta.LenList(list) > 0, nil
}

func (c *Controller) deleteRegistrationRoleBinding(ctx context.Context, cluster string) error {
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: fleet.RegistrationRoleBinding(cluster)}}
	if err := c.delete(ctx, binding); err != nil {
		return fmt.Errorf("delete RoleBinding %s/%s: %w", cluster, binding.Name, err)
	}
	return nil
}

func (c *Controller) deleteLease(ctx context.Context, cluster string) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: fleet.ClusterNamespaceLease}}
	if err := c.delete(ctx, lease); err != nil {
		return fmt.Errorf("delete Lease %s/%s: %w", cluster, lease.Name, err)
	}
	return nil
}

func (c *Controller) deleteRightsToWorks(ctx context.Context, cluster string) error {
	return errors.Join(c.deleteFinalized(ctx, workRoleBinding(cluster)), c.deleteRemainingWorksRole(ctx, cluster))
}

func (c *Controller) deleteRemainingWorksRole(ctx context.Context, cluster string) error {
	return errors.Join(c.deleteFinalized(ctx, remainingWorksBinding(cluster)), c.deleteFinalized(ctx, remainingWorksRole(cluster)))
}

// deleteFinalized deletes an object that has FinalizerManifestWorkCleanup.
func (c *Controller) deleteFinalized(ctx context.Context, o client.Object) error {
	key := client.ObjectKeyFromObject(o)
	// The cache lacks an object that has lost its label, and a right must not outlive that.
	if err := c.live.Get(ctx, key, o); err != nil {
		return client.IgnoreNotFound(err)
	}
	before, ok := o.DeepCopyObject().(client.Object)
	if ok && controllerutil.RemoveFinalizer(o, fleet.FinalizerManifestWorkCleanup) {
		err := c.client.Patch(ctx, o, client.MergeFrom(before), client.DisableReadYourWritesConsistency)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("patch finalizers of %T %s: %w", o, key, err)
		}
	}
	if err := c.delete(ctx, o); err != nil {
		return fmt.Errorf("delete %T %s: %w", o, key, err)
	}
	return nil
}

func workRoleBinding(cluster string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: fleet.WorkRoleBinding(cluster)}}
}

func remainingWorksBinding(cluster string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: fleet.RemainingWorksRole(cluster)}}
}

func remainingWorksRole(cluster string) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: fleet.RemainingWorksRole(cluster)}}
}

// delete sends requests to the API server itself: the cache lacks objects that have lost their label and those that are very new, and a
// right must not outlive that. Later reads do not wait for the deletion, which a cache without the object would never see.
func (c *Controller) delete(ctx context.Context, o client.Object) error {
	return client.IgnoreNotFound(c.client.Delete(ctx, o, client.DisableReadYourWritesConsistency))
}

func (c *Controller) deleteClusterRole(ctx context.Context, cluster string) error {
	name := metav1.ObjectMeta{Name: fleet.ManagedClusterClusterRole(cluster)}
	for _, o := range []client.Object{&rbacv1.ClusterRoleBinding{ObjectMeta: name}, &rbacv1.ClusterRole{ObjectMeta: name}} {
		if err := c.delete(ctx, o); err != nil {
			return fmt.Errorf("delete %T %s: %w", o, name.Name, err)
		}
	}
	return nil
}

func (c *Controller) ensureClusterRole(ctx context.Context, cluster string, rules []rbacv1.PolicyRule) error {
	return ensure(ctx, c, client.ObjectKey{Name: fleet.ManagedClusterClusterRole(cluster)}, func(role *rbacv1.ClusterRole) {
		c.label(role, cluster)
		role.Rules = rules
	})
}

func (c *Controller) ensureClusterRoleBinding(ctx context.Context, cluster string) error {
	return ensure(ctx, c, client.ObjectKey{Name: fleet.ManagedClusterClusterRole(cluster)}, func(binding *rbacv1.ClusterRoleBinding) {
		c.label(binding, cluster)
		binding.RoleRef = clusterRole(fleet.ManagedClusterClusterRole(cluster))
		binding.Subjects = agents(cluster)
	})
}

func (c *Controller) ensureRoleBinding(ctx context.Context, cluster, name, role string, finalizers ...string) error {
	return ensure(ctx, c, client.ObjectKey{Namespace: cluster, Name: name}, func(binding *rbacv1.RoleBinding) {
		c.label(binding, cluster)
		for _, f := range finalizers {
			controllerutil.AddFinalizer(binding, f)
		}
		binding.RoleRef = clusterRole(role)
		binding.Subjects = agents(cluster)
	})
}

func (c *Controller) ensureWorkRoleBinding(ctx context.Context, cluster string) error {
	return c.ensureRoleBinding(ctx, cluster, fleet.WorkRoleBinding(cluster), fleet.ClusterRoleWork, fleet.FinalizerManifestWorkCleanup)
}

// ensureCommonRoles applies the roles that the bindings of all clusters refer to.
func (c *Controller) ensureCommonRoles(ctx context.Context) error {
	for name, rules := range commonRules {
		err := ensure(ctx, c, client.ObjectKey{Name: name}, func(role *rbacv1.ClusterRole) {
			c.addLabels(role)
			role.Rules = rules
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ensure creates an object, or changes it as mutate wants. The cache reports whether there is anything to do. The patch is computed
// against the object from the API server, because the cache strips objects and lacks those without the label of a cluster.
func ensure[T any, O interface {
	*T
	client.Object
}](ctx context.Context, c *Controller, key client.ObjectKey, mutate func(O)) error {
	var cached, desired, live O = new(T), new(T), new(T)
	err := c.client.Get(ctx, key, cached)
	switch {
	case err == nil:
		desired = cached.DeepCopyObject().(O)
		if mutate(desired); equality.Semantic.DeepEqual(cached, desired) {
			return nil
		}
	case apierrors.IsNotFound(err):
		desired.SetNamespace(key.Namespace)
		desired.SetName(key.Name)
		mutate(desired)
		if err = c.client.Create(ctx, desired); err == nil {
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %T %s: %w", desired, key, err)
		}
	default:
		return fmt.Errorf("get %T %s: %w", cached, key, err)
	}
	if err := c.live.Get(ctx, key, live); err != nil {
		return fmt.Errorf("get %T %s: %w", live, key, err)
	}
	before := live.DeepCopyObject().(O)
	mutate(live)
	_, err = patch.Object(ctx, c.client, live, before)
	return err
}

// label sets the labels of what belongs to a cluster.
func (c *Controller) label(o client.Object, cluster string) {
	c.addLabels(o)
	l := o.GetLabels()
	if l == nil {
		l = map[string]string{}
	}
	l[fleet.LabelClusterName] = cluster
	o.SetLabels(l)
}

// addLabels adds the configured labels, and keeps labels of other writers.
func (c *Controller) addLabels(o client.Object) {
	if len(c.Labels) == 0 {
		return
	}
	l := maps.Clone(c.Labels)
	for key, value := range o.GetLabels() {
		if _, ours := l[key]; !ours {
			l[key] = value
		}
	}
	o.SetLabels(l)
}

func clusterRole(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

// agents returns the groups of a cluster's agent: that of certificates, and that of the AWS driver.
func agents(cluster string) []rbacv1.Subject {
	return []rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.ClusterGroup(cluster)},
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.AWSClusterGroup(cluster)},
	}
}
