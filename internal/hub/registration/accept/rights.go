package accept

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"golang.org/x/sync/errgroup"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/fleet"
)

// admit makes everything an accepted cluster has on the hub. What does not need the namespace is made beside it.
func (c *Controller) admit(ctx context.Context, cluster string) error {
	first, firstCtx := errgroup.WithContext(ctx)
	first.Go(func() error { return c.ensureNamespace(firstCtx, cluster) })
	first.Go(func() error { return c.ensureClusterRole(firstCtx, cluster, acceptedRules(cluster)) })
	first.Go(func() error { return c.ensureClusterRoleBinding(firstCtx, cluster) })
	if err := first.Wait(); err != nil {
		return err
	}
	then, thenCtx := errgroup.WithContext(ctx)
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
	registration := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: fleet.RegistrationRoleBinding(cluster)}}
	if err := client.IgnoreNotFound(c.client.Delete(ctx, registration)); err != nil {
		return false, fmt.Errorf("delete RoleBinding %s/%s: %w", cluster, registration.Name, err)
	}
	works := &workv1.ManifestWorkList{}
	if err := c.live.List(ctx, works, client.InNamespace(cluster), client.Limit(1)); err != nil {
		return false, fmt.Errorf("list ManifestWorks in namespace %s: %w", cluster, err)
	}
	if len(works.Items) > 0 {
		return false, nil
	}
	return true, c.deleteWorkRoleBinding(ctx, cluster)
}

func (c *Controller) deleteWorkRoleBinding(ctx context.Context, cluster string) error {
	work := &rbacv1.RoleBinding{}
	key := client.ObjectKey{Namespace: cluster, Name: fleet.WorkRoleBinding(cluster)}
	if err := c.client.Get(ctx, key, work); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := work.DeepCopy()
	if controllerutil.RemoveFinalizer(work, fleet.FinalizerManifestWorkCleanup) {
		if err := c.client.Patch(ctx, work, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("patch finalizers of RoleBinding %s: %w", key, err)
		}
	}
	if err := client.IgnoreNotFound(c.client.Delete(ctx, work)); err != nil {
		return fmt.Errorf("delete RoleBinding %s: %w", key, err)
	}
	return nil
}

func (c *Controller) deleteClusterRole(ctx context.Context, cluster string) error {
	name := metav1.ObjectMeta{Name: fleet.ManagedClusterClusterRole(cluster)}
	for _, o := range []client.Object{&rbacv1.ClusterRoleBinding{ObjectMeta: name}, &rbacv1.ClusterRole{ObjectMeta: name}} {
		if err := client.IgnoreNotFound(c.client.Delete(ctx, o)); err != nil {
			return fmt.Errorf("delete %T %s: %w", o, name.Name, err)
		}
	}
	return nil
}

func (c *Controller) ensureNamespace(ctx context.Context, cluster string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	err := c.ensure(ctx, ns, func() { belongsTo(ns, cluster) })
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	// It was there before the cluster, without the label that this controller's cache selects by.
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(ns), ns); err != nil {
		return fmt.Errorf("get Namespace %s: %w", cluster, err)
	}
	before := ns.DeepCopy()
	belongsTo(ns, cluster)
	if err := c.client.Patch(ctx, ns, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("label Namespace %s: %w", cluster, err)
	}
	return nil
}

func (c *Controller) ensureClusterRole(ctx context.Context, cluster string, rules []rbacv1.PolicyRule) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fleet.ManagedClusterClusterRole(cluster)}}
	return c.ensure(ctx, role, func() {
		belongsTo(role, cluster)
		role.Rules = rules
	})
}

func (c *Controller) ensureClusterRoleBinding(ctx context.Context, cluster string) error {
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fleet.ManagedClusterClusterRole(cluster)}}
	return c.ensure(ctx, binding, func() {
		belongsTo(binding, cluster)
		binding.RoleRef = clusterRole(fleet.ManagedClusterClusterRole(cluster))
		binding.Subjects = agents(cluster)
	})
}

func (c *Controller) ensureRoleBinding(ctx context.Context, cluster, name, role string, finalizers ...string) error {
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	return c.ensure(ctx, binding, func() {
		belongsTo(binding, cluster)
		for _, f := range finalizers {
			controllerutil.AddFinalizer(binding, f)
		}
		binding.RoleRef = clusterRole(role)
		binding.Subjects = agents(cluster)
	})
}

// ensureLease is RG-20: the hub makes the lease, the agent renews it.
func (c *Controller) ensureLease(ctx context.Context, cluster string) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: fleet.ClusterNamespaceLease}}
	return c.ensure(ctx, lease, func() {
		belongsTo(lease, cluster)
		if lease.Spec.HolderIdentity == nil {
			lease.Spec.HolderIdentity = ptr.To(fleet.ClusterNamespaceLease)
			lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(c.clock.Now()))
		}
	})
}

// ensureCommonRoles is RG-45: the roles that every cluster's bindings refer to. They carry no cluster's label, so a change
// to them is mended with the next cluster that is reconciled.
func (c *Controller) ensureCommonRoles(ctx context.Context) error {
	for name, rules := range commonRules {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := c.ensure(ctx, role, func() { role.Rules = rules }); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

func (c *Controller) ensure(ctx context.Context, o client.Object, mutate func()) error {
	_, err := controllerutil.CreateOrUpdate(ctx, c.client, o, func() error { mutate(); return nil })
	if err != nil {
		return fmt.Errorf("ensure %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	return nil
}

func belongsTo(o client.Object, cluster string) {
	l := o.GetLabels()
	if l == nil {
		l = map[string]string{}
	}
	l[fleet.LabelClusterName] = cluster
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
