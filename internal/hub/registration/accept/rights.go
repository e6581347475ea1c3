package accept

import (
	"context"
	"fmt"
	"maps"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"golang.org/x/sync/errgroup"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/fleet"
	"github.com/capstan-io/capstan/internal/patch"
)

// admit makes everything an accepted cluster has on the hub. What does not need the namespace is made beside it. An API server
// lets only its administrators bind a role that does not exist yet.
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
		return c.ensureRoleBinding(thenCtx, cluster, fleet.RegistrationRoleBinding(cluster), fleet.ClusterRoleRegistration)
	})
	then.Go(func() error {
		return c.ensureRoleBinding(thenCtx, cluster, fleet.WorkRoleBinding(cluster), fleet.ClusterRoleWork, fleet.FinalizerManifestWorkCleanup)
	})
	then.Go(func() error { return c.ensureLease(thenCtx, cluster) })
	return then.Wait()
}

// expel takes away what a cluster may do in its namespace. It reports false while ManifestWorks remain there: the agent
// keeps its rights on them until it has cleaned up.
func (c *Controller) expel(ctx context.Context, cluster string) (bool, error) {
	if err := c.deleteRegistrationRoleBinding(ctx, cluster); err != nil {
		return false, err
	}
	remain, err := c.remain(ctx, cluster, &workv1.ManifestWorkList{})
	if err != nil || remain {
		return false, err
	}
	return true, c.deleteWorkRoleBinding(ctx, cluster)
}

// remain tells whether there are objects of the list's kind in the namespace of a cluster.
func (c *Controller) remain(ctx context.Context, cluster string, list client.ObjectList) (bool, error) {
	err := c.live.List(ctx, list, client.InNamespace(cluster), client.Limit(1))
	if meta.IsNoMatchError(err) {
		return false, nil // a hub that does not have the kind
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

func (c *Controller) deleteWorkRoleBinding(ctx context.Context, cluster string) error {
	work := &rbacv1.RoleBinding{}
	key := client.ObjectKey{Namespace: cluster, Name: fleet.WorkRoleBinding(cluster)}
	// The cache has none that lost its label, and a right must not outlive that.
	if err := c.live.Get(ctx, key, work); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := work.DeepCopy()
	if controllerutil.RemoveFinalizer(work, fleet.FinalizerManifestWorkCleanup) {
		if err := c.client.Patch(ctx, work, client.MergeFrom(before), client.DisableReadYourWritesConsistency); err != nil {
			return fmt.Errorf("patch finalizers of RoleBinding %s: %w", key, err)
		}
	}
	if err := c.delete(ctx, work); err != nil {
		return fmt.Errorf("delete RoleBinding %s: %w", key, err)
	}
	return nil
}

// delete asks the API server itself: the cache has no object that lost its label, and not yet one that is new, and a right
// must not outlive that. Nor does anybody wait for the cache to see the object go that it may never have had.
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

func (c *Controller) ensureNamespace(ctx context.Context, cluster string) error {
	return ensure(ctx, c, client.ObjectKey{Name: cluster}, func(ns *corev1.Namespace) { c.label(ns, cluster) })
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

// ensureLease is RG-20: the hub makes the lease, the agent renews it.
func (c *Controller) ensureLease(ctx context.Context, cluster string) error {
	return ensure(ctx, c, client.ObjectKey{Namespace: cluster, Name: fleet.ClusterNamespaceLease}, func(lease *coordinationv1.Lease) {
		c.label(lease, cluster)
		if lease.Spec.HolderIdentity == nil {
			lease.Spec.HolderIdentity = ptr.To(fleet.ClusterNamespaceLease)
			lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(c.Clock.Now()))
		}
	})
}

// ensureCommonRoles is RG-45: the roles that every cluster's bindings refer to.
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

// ensure makes an object, or makes it be what mutate wants. The cache tells whether there is anything to do. What is
// written is the difference to the object itself: the cache leaves parts of objects out, and all those without the label
// of a cluster.
func ensure[T any, O interface {
	*T
	client.Object
}](ctx context.Context, c *Controller, key client.ObjectKey, mutate func(O)) error {
	var cached, wanted, live O = new(T), new(T), new(T)
	err := c.client.Get(ctx, key, cached)
	switch {
	case err == nil:
		wanted = cached.DeepCopyObject().(O)
		if mutate(wanted); equality.Semantic.DeepEqual(cached, wanted) {
			return nil
		}
	case apierrors.IsNotFound(err):
		wanted.SetNamespace(key.Namespace)
		wanted.SetName(key.Name)
		mutate(wanted)
		if err = c.client.Create(ctx, wanted); err == nil {
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %T %s: %w", wanted, key, err)
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

// label marks what belongs to a cluster.
func (c *Controller) label(o client.Object, cluster string) {
	c.addLabels(o)
	l := o.GetLabels()
	if l == nil {
		l = map[string]string{}
	}
	l[fleet.LabelClusterName] = cluster
	o.SetLabels(l)
}

// addLabels keeps those that others put there.
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

// agents are the groups of a cluster's agent: from a certificate, and from the AWS driver.
func agents(cluster string) []rbacv1.Subject {
	return []rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.ClusterGroup(cluster)},
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.AWSClusterGroup(cluster)},
	}
}
