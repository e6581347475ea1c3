package klusterlet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/operator/apply"
	"github.com/capstan-io/capstan/internal/operator/crds"
)

// How long a removal waits for what may never come.
const (
	// evictionTimeout is how long the managed cluster of a hosted Klusterlet may be unreachable before what is there is given up.
	evictionTimeout = 5 * time.Minute
	// podsTimeout is how long the pods of agents may take to end: those on a node that is lost never do.
	podsTimeout = 2 * time.Minute
	// whileRemoving is how often is looked at what no event tells about: clusters that cannot be reached, and pods.
	whileRemoving = 5 * time.Second
)

// remove takes an agent away: first what runs it, then what it has left, then its rights and namespaces.
func (c *Controller) remove(ctx context.Context, k *operatorv1.Klusterlet) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(k, fleet.FinalizerKlusterletCleanup) &&
		!controllerutil.ContainsFinalizer(k, fleet.FinalizerKlusterletHostedCleanup) {
		return ctrl.Result{}, nil
	}
	before := k.DeepCopy()
	waitsFor, err := c.removeAll(ctx, k)
	if err == nil && waitsFor == "" {
		c.managed.Disconnect(k.Name)
		return ctrl.Result{}, patch.RemoveFinalizer(ctx, c.client, k, fleet.FinalizerKlusterletCleanup)
	}
	if err == nil {
		err = errors.New("the Klusterlet is being deleted, which waits for " + waitsFor)
	}
	r := newReport(k)
	failure := r.failed(fleet.ReasonKlusterletApplyFailed, err)
	before.Finalizers, before.Annotations, before.ResourceVersion = k.Finalizers, k.Annotations, k.ResourceVersion
	if _, err := patch.Status(ctx, c.client, k, before); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if waitsFor == "" {
		return ctrl.Result{}, failure
	}
	return ctrl.Result{RequeueAfter: whileRemoving}, nil
}

// removeAll returns what has to go before the next step; empty when nothing is left.
func (c *Controller) removeAll(ctx context.Context, k *operatorv1.Klusterlet) (waitsFor string, err error) {
	if waitsFor, err = c.removeDeployments(ctx, k); waitsFor != "" || err != nil {
		return waitsFor, err
	}
	l := layoutOf(k)
	if controllerutil.ContainsFinalizer(k, fleet.FinalizerKlusterletHostedCleanup) {
		if waitsFor, err = c.removeFromHosted(ctx, k); waitsFor != "" || err != nil {
			return waitsFor, err
		}
	}
	if !l.hosted {
		if err := c.removeAppliedWorks(ctx, k, c.management); err != nil {
			return "", err
		}
	}
	left, err := uninstall(ctx, c.management, k.Name)
	if err != nil || l.hosted {
		return summary(left), err
	}
	shared, err := c.removeShared(ctx, c.management)
	return summary(append(left, shared...)), err
}

// mostNamed is how many objects a message names.
const mostNamed = 5

// summary names some of the objects that are left, empty if there are none.
func summary(left []string) string {
	if len(left) > mostNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(left[:mostNamed], ", "), len(left)-mostNamed)
	}
	return strings.Join(left, ", ")
}

// removeDeployments deletes the Deployments of the agents and waits until their pods have ended: an agent that still runs would put back
// what is taken away.
func (c *Controller) removeDeployments(ctx context.Context, k *operatorv1.Klusterlet) (waitsFor string, err error) {
	deployments, err := c.management.List(ctx, k.Name, apply.Deployments)
	if err != nil {
		return "", err
	}
	var left []string
	for _, deployment := range deployments {
		left = append(left, "Deployment "+client.ObjectKeyFromObject(deployment).String())
		if deployment.GetDeletionTimestamp() != nil {
			continue
		}
		if err := c.management.Client.Delete(
			ctx,
			deployment,
			client.PropagationPolicy(metav1.DeletePropagationForeground),
		); client.IgnoreNotFound(
			err,
		) != nil {
			return "", fmt.Errorf("delete Deployment %s: %w", client.ObjectKeyFromObject(deployment), err)
		}
	}
	if c.Clock.Since(k.DeletionTimestamp.Time) > podsTimeout {
		return "", nil
	}
	return strings.Join(left, ", "), nil
}

// removeFromHosted takes away what a hosted Klusterlet has on the managed cluster, or gives up if that cannot be reached for too long. The
// finalizer for it is removed then.
func (c *Controller) removeFromHosted(ctx context.Context, k *operatorv1.Klusterlet) (waitsFor string, err error) {
	waitsFor, err = c.removeFromManaged(ctx, k)
	switch {
	case err != nil && isUnreachable(err):
		givenUp, giveUpErr := c.giveUp(ctx, k, err)
		if giveUpErr != nil {
			return "", giveUpErr
		}
		if !givenUp {
			return fmt.Sprintf(
				"the managed cluster, which cannot be reached: %v; what is there is given up %s after the first attempt",
				err,
				evictionTimeout,
			), nil
		}
	case err != nil || waitsFor != "":
		return waitsFor, errors.Join(orGiveUp(k, err), c.forgetUnreachable(ctx, k))
	}
	c.managed.Disconnect(k.Name)
	if err := c.forgetUnreachable(ctx, k); err != nil {
		return "", err
	}
	written := k.DeepCopy()
	if err := patch.RemoveFinalizer(ctx, c.client, written, fleet.FinalizerKlusterletHostedCleanup); err != nil {
		return "", err
	}
	k.Finalizers, k.ResourceVersion = written.Finalizers, written.ResourceVersion // its status may have been changed in memory
	return "", nil
}

// orGiveUp says what to do when an error of a managed cluster that answers does not go away, such as that a credential has expired.
func orGiveUp(k *operatorv1.Klusterlet, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; correct Secret %s/%s, or delete it: %s later, what is on the managed cluster is given up",
		err, k.Name, fleet.SecretExternalManagedKubeconfig, evictionTimeout)
}

func (c *Controller) removeFromManaged(ctx context.Context, k *operatorv1.Klusterlet) (waitsFor string, err error) {
	managed, err := c.connect(ctx, layoutOf(k))
	if err != nil {
		return "", err
	}
	if err := c.removeAppliedWorks(ctx, k, managed.Cluster); err != nil {
		return "", err
	}
	if managed.Cluster == c.management {
		return "", nil // it goes with the rest
	}
	left, err := uninstall(ctx, managed.Cluster, k.Name)
	if err != nil {
		return "", err
	}
	shared, err := c.removeShared(ctx, managed.Cluster)
	return summary(append(left, shared...)), err
}

// giveUp tells whether the managed cluster has been unreachable for too long. It writes down since when it is.
func (c *Controller) giveUp(ctx context.Context, k *operatorv1.Klusterlet, why error) (bool, error) {
	now := c.Clock.Now()
	since, err := time.Parse(time.RFC3339, k.Annotations[fleet.AnnotationEvictionTimestamp])
	if err == nil {
		if now.Sub(since) > evictionTimeout {
			log.FromContext(ctx).Error(why, "What the Klusterlet has on its managed cluster is given up", "klusterlet", k.Name)
			return true, nil
		}
		return false, nil
	}
	return false, c.annotate(ctx, k, strconv.Quote(now.UTC().Format(time.RFC3339)))
}

// forgetUnreachable ends the time for which the managed cluster was unreachable: another one begins anew.
func (c *Controller) forgetUnreachable(ctx context.Context, k *operatorv1.Klusterlet) error {
	if _, found := k.Annotations[fleet.AnnotationEvictionTimestamp]; !found {
		return nil
	}
	return c.annotate(ctx, k, "null")
}

// annotate writes since when the managed cluster is unreachable, in JSON.
func (c *Controller) annotate(ctx context.Context, k *operatorv1.Klusterlet, since string) error {
	change := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, fleet.AnnotationEvictionTimestamp, since)
	written := k.DeepCopy()
	if err := c.client.Patch(ctx, written, client.RawPatch(types.MergePatchType, change)); err != nil {
		return client.IgnoreNotFound(err)
	}
	k.Annotations, k.ResourceVersion = written.Annotations, written.ResourceVersion
	return nil
}

// isUnreachable tells whether an error is one of the connection, or there is no way to connect at all.
func isUnreachable(err error) bool {
	var dns *net.DNSError
	return errors.Is(err, errNoKubeconfig) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &dns) || utilnet.IsTimeout(err) ||
		utilnet.IsConnectionRefused(
			err,
		) || utilnet.IsConnectionReset(err) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

// leaveHosted takes away what a Klusterlet has on the cluster that it managed before its mode was changed to one that is not hosted.
func (c *Controller) leaveHosted(ctx context.Context, l layout) error {
	if l.hosted || !controllerutil.ContainsFinalizer(l.klusterlet, fleet.FinalizerKlusterletHostedCleanup) {
		return nil
	}
	waitsFor, err := c.removeFromHosted(ctx, l.klusterlet)
	if err != nil {
		return err
	}
	if waitsFor != "" {
		return errors.New("the mode was one of the hosted ones, and changing it waits for " + waitsFor)
	}
	return nil
}

// removeAppliedWorks lets go of what the agent has applied for works: it stays, and what is being deleted is garbage collected.
func (c *Controller) removeAppliedWorks(ctx context.Context, k *operatorv1.Klusterlet, cluster *apply.Cluster) error {
	var failures []error
	list := &workv1.AppliedManifestWorkList{}
	for {
		if err := cluster.Client.List(ctx, list, client.Limit(100), client.Continue(list.Continue)); err != nil {
			if meta.IsNoMatchError(err) {
				return nil
			}
			return fmt.Errorf("list AppliedManifestWorks: %w", err)
		}
		for i := range list.Items {
			if work := &list.Items[i]; work.Spec.AgentID == string(k.UID) {
				failures = append(failures, patch.RemoveFinalizer(ctx, cluster.Client, work, fleet.FinalizerAppliedManifestWorkCleanup))
			}
		}
		if list.Continue == "" {
			return errors.Join(failures...)
		}
	}
}

// uninstall deletes all objects of an installation, and returns those that are still there. What the cache has not seen yet counts, too.
func uninstall(ctx context.Context, cluster *apply.Cluster, installation string) (left []string, err error) {
	// The controller that fills in its rules creates it again if the roles that these come from go at the same time.
	if found, err := removeAggregate(ctx, cluster, installation); found || err != nil {
		return []string{"ClusterRole " + aggregateRole(installation)}, err
	}
	if left, err = cluster.Prune(ctx, installation); err != nil || len(left) > 0 {
		return left, err
	}
	return cluster.PruneLive(ctx, installation)
}

// removeAggregate deletes the ClusterRole with the rights of works, and tells whether it was there.
func removeAggregate(ctx context.Context, cluster *apply.Cluster, installation string) (found bool, err error) {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: aggregateRole(installation)}}
	err = cluster.Client.Delete(ctx, role)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return true, err
}

// removeShared takes away what all Klusterlets of a cluster share, after the last of them: the namespace of add-ons, but not the CRDs,
// which hold what users have stored, and not what was copied to namespaces of users.
func (c *Controller) removeShared(ctx context.Context, cluster *apply.Cluster) (left []string, err error) {
	namespaces := &corev1.NamespaceList{}
	if err := cluster.Client.List(ctx, namespaces, client.HasLabels{fleet.LabelKlusterlet}); err != nil {
		return nil, fmt.Errorf("list the namespaces of Klusterlets: %w", err)
	}
	if slices.ContainsFunc(namespaces.Items, func(n corev1.Namespace) bool { return n.DeletionTimestamp.IsZero() }) {
		return nil, nil // those of others
	}
	kept, err := cluster.List(ctx, sharedInstallation, crds.Kind)
	if err != nil {
		return nil, err
	}
	for _, crd := range kept {
		if err := crds.Release(ctx, cluster, crd); err != nil {
			return nil, err
		}
	}
	made, err := cluster.List(ctx, sharedInstallation, corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err != nil || c.WithoutAddOnNamespace {
		return nil, err
	}
	for _, namespace := range made {
		if err := cluster.Delete(ctx, namespace); err != nil {
			return nil, fmt.Errorf("delete Namespace %s: %w", namespace.GetName(), err)
		}
		left = append(left, "Namespace "+namespace.GetName())
	}
	return left, nil
}
