package klusterlet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/tokenaccounts"
	"github.com/capstan-io/capstan/internal/tokenaccounts/controllerclient"
)

// How long a removal waits for what may never come.
const (
	// evictionTimeout is how long the managed cluster of a hosted Klusterlet may be unreachable before what is there is given up.
	evictionTimeout = 5 * time.Minute
	// podsTimeout is how long the pods of agents may take to end once their Deployment is deleted: those on a node that is lost never do.
	podsTimeout = 2 * time.Minute
)

// reportRemoval reports what a removal waits for, or why it fails.
func reportRemoval(k *operatorv1.Klusterlet, waitsFor string, err error) {
	if err == nil {
		err = errors.New("the Klusterlet is being deleted, which waits for " + waitsFor)
	}
	_ = newReport(k).failed(fleet.ReasonKlusterletApplyFailed, err)
}

// removeAll removes an agent: first what runs it, then what it has left, then its rights and namespaces. It returns what has to go
// before the next step; empty when nothing is left.
func (c *Controller) removeAll(ctx context.Context, k *operatorv1.Klusterlet) (waitsFor string, err error) {
	if waitsFor, err = c.removeDeployments(ctx, k); waitsFor != "" || err != nil {
		return waitsFor, err
	}
	if controllerutil.ContainsFinalizer(k, fleet.FinalizerKlusterletHostedCleanup) {
		if waitsFor, err = c.removeFromHosted(ctx, k); waitsFor != "" || err != nil {
			return waitsFor, err
		}
	}
	return c.removeHere(ctx, layoutOf(k))
}

// removeHere takes away what a Klusterlet has on the cluster of the operator. A hosted one may manage it, or have managed it before its
// mode was changed: with an operator that may not read what was applied, nor the namespaces and service accounts, it has not.
func (c *Controller) removeHere(ctx context.Context, l layout) (waitsFor string, err error) {
	if err := l.unlessNeedless(c.removeAppliedWorks(ctx, l.klusterlet, c.Management)); err != nil {
		return "", err
	}
	if err := l.unlessNeedless(removeTokenAccounts(ctx, l.klusterlet, c.Management)); err != nil {
		return "", err
	}
	left, err := c.uninstall(ctx, l, c.Management)
	if err != nil {
		return frame.Summary(left), err
	}
	shared, err := c.removeShared(ctx, c.Management)
	return frame.Summary(append(left, shared...)), l.unlessNeedless(err)
}

// unlessNeedless is an error about the cluster of the operator, unless it is that a right is missing, which the operator of hosted agents
// does without.
func (l layout) unlessNeedless(err error) error {
	if l.hosted && apiclient.Denied(err) {
		return nil
	}
	return err
}

// removeDeployments deletes the Deployments of the agents and waits until their pods have ended: an agent that still runs would put back
// what is taken away.
func (c *Controller) removeDeployments(ctx context.Context, k *operatorv1.Klusterlet) (waitsFor string, err error) {
	deployments, err := c.Management.List(ctx, k.Name, apply.Deployments)
	if err != nil {
		return "", err
	}
	left, err := c.endDeployments(ctx, deployments)
	return strings.Join(left, ", "), err
}

// endDeployments deletes the Deployments, and returns those whose pods may yet end.
func (c *Controller) endDeployments(ctx context.Context, deployments []client.Object) (left []string, err error) {
	for _, deployment := range deployments {
		deleted := deployment.GetDeletionTimestamp()
		if deleted != nil && c.Clock.Since(deleted.Time) > podsTimeout {
			continue
		}
		left = append(left, "Deployment "+client.ObjectKeyFromObject(deployment).String())
		if deleted != nil {
			continue
		}
		err := c.Management.Client.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationForeground))
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("delete Deployment %s: %w", client.ObjectKeyFromObject(deployment), err)
		}
	}
	return left, nil
}

// removeFromHosted takes away what a hosted Klusterlet has on the managed cluster, or gives up if that cannot be reached for too long. The
// finalizer for it is removed then.
func (c *Controller) removeFromHosted(ctx context.Context, k *operatorv1.Klusterlet) (waitsFor string, err error) {
	waitsFor, err = c.removeFromManaged(ctx, k)
	switch {
	case err != nil && isUnreachable(err):
		abandoned, abandonErr := c.isAbandoned(ctx, k, err)
		if abandonErr != nil {
			return "", abandonErr
		}
		if !abandoned {
			return fmt.Sprintf("the managed cluster, which cannot be reached: %v; what is there is given up %s after the first attempt", err,
				evictionTimeout), nil
		}
	case err != nil || waitsFor != "":
		return waitsFor, errors.Join(withAdvice(k, err), c.clearUnreachable(ctx, k))
	}
	c.Elsewhere.Disconnect(k.Name)
	if err := c.clearUnreachable(ctx, k); err != nil {
		return "", err
	}
	return "", frame.RemoveFinalizer(ctx, c.Client, k, fleet.FinalizerKlusterletHostedCleanup)
}

// withAdvice says what to do when an error of a managed cluster that answers does not go away, such as that a credential has expired.
func withAdvice(k *operatorv1.Klusterlet, err error) error {
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
	return c.removeElsewhere(ctx, layoutOf(k), managed)
}

// removeElsewhere does so once the managed cluster is reached.
func (c *Controller) removeElsewhere(ctx context.Context, l layout, managed managedCluster) (waitsFor string, err error) {
	if err := c.removeAppliedWorks(ctx, l.klusterlet, managed.Cluster); err != nil {
		return "", err
	}
	if managed.here && l.klusterlet.DeletionTimestamp.IsZero() {
		return "", nil // the agent stays, and so do the accounts that it keeps
	}
	if err := removeTokenAccounts(ctx, l.klusterlet, managed.Cluster); err != nil {
		return "", err
	}
	if managed.here {
		return "", nil // it goes with the rest
	}
	if namesake, err := c.hasNamesake(ctx, l, managed.Cluster); namesake || err != nil {
		return "", err // what is there under this name is that of the other one
	}
	left, err := c.uninstall(ctx, l, managed.Cluster)
	if err != nil {
		return "", err
	}
	shared, err := c.removeShared(ctx, managed.Cluster)
	return frame.Summary(append(left, shared...)), err
}

// isAbandoned reports whether the managed cluster has been unreachable for too long. It records since when it is. Nobody knows whether it
// was while no operator ran, or when this one has not looked for longer than evictionTimeout: the time starts anew then.
func (c *Controller) isAbandoned(ctx context.Context, k *operatorv1.Klusterlet, why error) (bool, error) {
	now := c.Clock.Now()
	stored, _ := c.unreachable.Load(k.Name)
	last, seen := stored.(time.Time)
	since, err := time.Parse(time.RFC3339, k.Annotations[fleet.AnnotationEvictionTimestamp])
	if !seen || now.Sub(last) > evictionTimeout || err != nil {
		since = now
		if err := c.recordUnreachable(ctx, k, now.UTC().Format(time.RFC3339)); err != nil {
			return false, err // what is recorded is of another time
		}
	}
	c.unreachable.Store(k.Name, now)
	if now.Sub(since) <= evictionTimeout {
		return false, nil
	}
	log.FromContext(ctx).Error(why, "What the Klusterlet has on its managed cluster is given up", "klusterlet", k.Name)
	return true, nil
}

// clearUnreachable ends the time for which the managed cluster was unreachable: another one starts anew.
func (c *Controller) clearUnreachable(ctx context.Context, k *operatorv1.Klusterlet) error {
	c.unreachable.Delete(k.Name)
	return c.recordUnreachable(ctx, k, "")
}

// recordUnreachable records since when the managed cluster is unreachable.
func (c *Controller) recordUnreachable(ctx context.Context, k *operatorv1.Klusterlet, since string) error {
	return client.IgnoreNotFound(frame.Annotate(ctx, c.Client, k, fleet.AnnotationEvictionTimestamp, since))
}

// isUnreachable reports whether an error is one of the connection, or it is not known how to connect.
func isUnreachable(err error) bool {
	var dns *net.DNSError
	return errors.Is(err, errNoKubeconfig) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &dns) || utilnet.IsTimeout(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) ||
		errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

// removeHosted removes what a Klusterlet has on the cluster that it managed before its mode was changed to one that is not hosted.
func (c *Controller) removeHosted(ctx context.Context, l layout) error {
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

// removeAppliedWorks orphans what the agent has applied for works: it stays, and what is being deleted is garbage collected.
func (c *Controller) removeAppliedWorks(ctx context.Context, k *operatorv1.Klusterlet, cluster *apply.Cluster) error {
	var failures []error
	list := &workv1.AppliedManifestWorkList{}
	for {
		if err := cluster.Client.List(ctx, list, client.Limit(100), client.Continue(list.Continue)); err != nil {
			if notServed(err) {
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

// removeTokenAccounts ends the tokens that the hub has of the cluster: those of the service accounts that the agent keeps for
// ManagedServiceAccounts.
func removeTokenAccounts(ctx context.Context, k *operatorv1.Klusterlet, cluster *apply.Cluster) error {
	return tokenaccounts.RemoveOf(ctx, controllerclient.On(cluster.Client), string(k.UID))
}

// notServed reports whether an error says that a cluster has no objects of a kind, because it does not serve the kind, or that it has not
// the one that was asked for. A client that has found a kind served before learns from the API server that it is no more.
func notServed(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// uninstall deletes all objects of the Klusterlet on a cluster, and returns those that are still there. What was applied a moment ago
// counts, too. A namespace that has another use stays.
func (c *Controller) uninstall(ctx context.Context, l layout, cluster *apply.Cluster) (left []string, err error) {
	// The controller that fills in its rules creates it again if the roles that these come from go at the same time.
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: aggregateRole(l.klusterlet.Name)}}
	if err := cluster.Client.Delete(ctx, role); !apierrors.IsNotFound(err) {
		return []string{"ClusterRole " + role.Name}, err
	}
	made, err := cluster.ListLive(ctx, l.klusterlet.Name, namespaces)
	if err != nil {
		return nil, err
	}
	used, err := c.leaveUsed(ctx, l, cluster, made)
	if err != nil {
		return nil, err
	}
	left, err = cluster.PruneLive(ctx, l.klusterlet.Name, used...)
	if err != nil || len(left) > 0 {
		return left, err
	}
	return nil, release(ctx, cluster, used)
}

// removeShared removes what all Klusterlets of a cluster share, after the last of them: the namespace of add-ons, but not the CRDs,
// which hold what users have stored, and not what was copied to namespaces of users.
func (c *Controller) removeShared(ctx context.Context, cluster *apply.Cluster) (left []string, err error) {
	ofKlusterlets := &corev1.NamespaceList{}
	if err := cluster.Client.List(ctx, ofKlusterlets, client.HasLabels{fleet.LabelKlusterlet}); err != nil {
		return nil, fmt.Errorf("list the namespaces of Klusterlets: %w", err)
	}
	if slices.ContainsFunc(ofKlusterlets.Items, func(n corev1.Namespace) bool { return n.DeletionTimestamp.IsZero() }) {
		return nil, nil // those of others
	}
	kept, err := cluster.ListLive(ctx, sharedInstallation, apply.CRDs)
	if err != nil {
		return nil, err
	}
	for _, crd := range kept {
		if err := cluster.ReleaseCRD(ctx, crd); err != nil {
			return nil, err
		}
	}
	made, err := cluster.ListLive(ctx, sharedInstallation, namespaces)
	if err != nil || c.options.WithoutAddOnNamespace {
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
