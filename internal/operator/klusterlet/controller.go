// Package klusterlet installs agents: it makes what a Klusterlet describes, on the cluster where the agent runs and on the one that it
// manages, keeps it so, and reports how it is doing.
package klusterlet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/operator/accountkubeconfig"
	"github.com/capstan-io/capstan/internal/operator/apply"
	"github.com/capstan-io/capstan/internal/operator/crds"
	"github.com/capstan-io/capstan/internal/operator/klusterlet/hubaccess"
	"github.com/capstan-io/capstan/internal/operator/remote"
	"github.com/capstan-io/capstan/internal/operator/rights"
	"github.com/capstan-io/capstan/internal/operator/upgrade"
)

// Options configure the operator.
type Options struct {
	// Namespace is that of the operator.
	Namespace string
	// Image is that of agents for which a Klusterlet names none.
	Image string
	// AWSCLIImage is the image with the AWS command line, for agents that register by AWS IAM; empty if they make tokens themselves.
	AWSCLIImage string
	// Version is that of the operator.
	Version string
	// Replicas is the number of replicas of each agent; 0 chooses by the number of nodes.
	Replicas int32
	// Nodes selects the nodes that count for the number of replicas; nil counts all that pods can run on.
	Nodes labels.Selector
	// SyncLabels copies the labels of a Klusterlet to what it consists of.
	SyncLabels bool
	// WithoutAddOnNamespace leaves out the namespace for the agents of add-ons.
	WithoutAddOnNamespace bool
	// Clock is the source of time; nil means the system clock.
	Clock clock.Clock
}

// Controller reconciles Klusterlets.
type Controller struct {
	Options
	// client reads from the cache of the manager.
	client client.Client
	// missing are the watches that are not permitted.
	missing  []rights.Watch
	recorder events.EventRecorder
	secrets  *secretsByName
	// management is the cluster of the operator, managed are those of hosted Klusterlets.
	management *apply.Cluster
	managed    *remote.Clusters
	// access is how the operator's cluster is reached.
	access *rest.Config
	hub    *hubaccess.Checks
}

// managedCluster is the cluster that an agent manages, and how it is reached.
type managedCluster struct {
	*apply.Cluster
	access *rest.Config
}

// Reconcile brings what there is to what there should be, and reports how far that is and how the agent is doing.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if !c.management.WaitForCacheSync(ctx) {
		return ctrl.Result{}, errors.New("what is installed is not known yet")
	}
	k := &operatorv1.Klusterlet{}
	if err := c.client.Get(ctx, req.NamespacedName, k); err != nil {
		if apierrors.IsNotFound(err) {
			c.managed.Disconnect(req.Name)
			c.hub.Forget(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !k.DeletionTimestamp.IsZero() {
		return c.remove(ctx, k)
	}
	before := k.DeepCopy()
	due, err := c.install(ctx, k)
	if c.reportRights(k) {
		due = earliest(due, whileUnwatched)
	}
	// Finalizers and the version may have been written.
	before.Finalizers, before.Annotations, before.ResourceVersion = k.Finalizers, k.Annotations, k.ResourceVersion
	if _, reportErr := patch.Status(ctx, c.client, k, before); reportErr != nil {
		return ctrl.Result{}, errors.Join(err, reportErr)
	}
	return ctrl.Result{RequeueAfter: due}, err
}

// whileUnwatched is how often a Klusterlet is looked at of which something changes without an event.
const whileUnwatched = 30 * time.Second

// reportRights says which rules the operator would need for what it leaves out, and tells whether there are any.
func (c *Controller) reportRights(k *operatorv1.Klusterlet) bool {
	rules := slices.Concat(rights.Rules(c.missing), c.management.MissingRules(), c.managed.MissingRules(k.Name), c.secrets.missingRules())
	rights.Report(c.recorder, k, &k.Status.Conditions, rules)
	return len(rules) > 0
}

// install makes what the Klusterlet describes and writes into its status how far that is. It returns how long nothing is due.
func (c *Controller) install(ctx context.Context, k *operatorv1.Klusterlet) (time.Duration, error) {
	l, r := layoutOf(k), newReport(k)
	r.gates(l)
	if err := errors.Join(
		validate(k),
		c.collision(ctx, l),
		upgrade.Check(k.Annotations[upgrade.AnnotationVersion], c.Version, k.Annotations),
	); err != nil {
		_ = r.failed(fleet.ReasonKlusterletApplyFailed, err)
		return 0, nil // until the Klusterlet, or the one that it collides with, changes
	}
	if err := addFinalizer(ctx, c.client, k, fleet.FinalizerKlusterletCleanup); err != nil {
		return 0, err
	}
	due, connection, err := c.connection(ctx, l)
	if err != nil {
		return 0, r.failed(fleet.ReasonKlusterletApplyFailed, err)
	}
	r.connection(connection)
	in, err := c.inputs(ctx, l)
	if err != nil {
		return 0, r.failed(fleet.ReasonKlusterletApplyFailed, err)
	}
	p := planFor(l, in)
	renewal, err := c.apply(ctx, r, l, p)
	r.deployments(ctx, c, l)
	if err != nil {
		return 0, err
	}
	if err := r.applied(c.management.Scheme, p); err != nil {
		return 0, err
	}
	return earliest(due, renewal), upgrade.Remember(ctx, c.client, k, c.Version)
}

// apply makes what is planned, in stages, each of which needs those before it. It reports the first that fails, and returns how long the
// tokens of hosted agents are good.
func (c *Controller) apply(ctx context.Context, r *report, l layout, p plan) (renewal time.Duration, err error) {
	managed, err := c.managedCluster(ctx, r, l)
	if err != nil {
		return 0, c.applyWithoutManaged(ctx, r, l, p, err)
	}
	if err := errors.Join(c.leaveHosted(ctx, l), c.ownNamespace(ctx, l, managed.Client)); err != nil {
		return 0, r.failed(fleet.ReasonManagedClusterResourceApplyFailed, err)
	}
	if err := crds.Apply(ctx, managed.Cluster, sharedInstallation, p.crds); err != nil {
		return 0, r.failed(fleet.ReasonCRDApplyFailed, err)
	}
	if err := errors.Join(
		managed.Apply(ctx, sharedInstallation, p.shared...),
		managed.Apply(ctx, l.klusterlet.Name, p.managed...),
	); err != nil {
		return 0, r.failed(fleet.ReasonManagedClusterResourceApplyFailed, err)
	}
	if err := c.management.Apply(ctx, l.klusterlet.Name, p.management...); err != nil {
		return 0, r.failed(fleet.ReasonManagementClusterResourceApplyFailed, err)
	}
	kubeconfigs, renewal, err := c.kubeconfigs(ctx, l, p, managed)
	if err != nil {
		return 0, r.failed(fleet.ReasonManagementClusterResourceApplyFailed, err)
	}
	if err := c.management.Apply(ctx, l.klusterlet.Name, p.deployments...); err != nil {
		return 0, r.failed(fleet.ReasonKlusterletApplyFailed, err)
	}
	if err := c.prune(ctx, l, p, managed, kubeconfigs); err != nil {
		return 0, r.failed(fleet.ReasonKlusterletApplyFailed, err)
	}
	return renewal, nil
}

// applyWithoutManaged keeps what there is where the agent runs while the managed cluster cannot be reached: the agent may be able to, or
// at least the namespace that the kubeconfig belongs into.
func (c *Controller) applyWithoutManaged(ctx context.Context, r *report, l layout, p plan, unreachable error) error {
	objects := p.management[:1:1] // the namespace
	if controllerutil.ContainsFinalizer(l.klusterlet, fleet.FinalizerKlusterletHostedCleanup) {
		objects = p.onManagement()
	}
	if err := c.management.Apply(ctx, l.klusterlet.Name, objects...); err != nil {
		return errors.Join(unreachable, r.failed(fleet.ReasonManagementClusterResourceApplyFailed, err))
	}
	return r.failed(fleet.ReasonManagedClusterResourceApplyFailed, unreachable)
}

// managedCluster is the cluster that the agent manages. If the agent is hosted, it reports whether that cluster can be reached.
func (c *Controller) managedCluster(ctx context.Context, r *report, l layout) (managedCluster, error) {
	if !l.hosted {
		r.notHosted()
		return managedCluster{c.management, c.access}, nil
	}
	managed, err := c.connect(ctx, l)
	r.prepared(err)
	if err != nil {
		return managed, err
	}
	return managed, addFinalizer(ctx, c.client, l.klusterlet, fleet.FinalizerKlusterletHostedCleanup)
}

// connect connects to the managed cluster of a hosted Klusterlet.
func (c *Controller) connect(ctx context.Context, l layout) (managedCluster, error) {
	name := types.NamespacedName{Namespace: l.klusterlet.Name, Name: fleet.SecretExternalManagedKubeconfig}
	secret, err := c.secrets.get(ctx, name.Namespace, name.Name)
	if err != nil {
		return managedCluster{}, err
	}
	if secret == nil {
		return managedCluster{}, fmt.Errorf("there is no Secret %s: %w; store a kubeconfig of the managed cluster there, under the key %s", name,
			errNoKubeconfig, fleet.KeyKubeconfig)
	}
	cluster, access, err := c.managed.Connect(ctx, l.klusterlet.Name, secret)
	if err != nil {
		return managedCluster{}, err
	}
	same, err := c.isOwn(ctx, cluster)
	if err != nil {
		return managedCluster{}, err
	}
	if same {
		// One that prunes what the other has applied would undo it.
		cluster = c.management
	}
	return managedCluster{cluster, access}, nil
}

// errNoKubeconfig says that it is not known where the managed cluster is.
var errNoKubeconfig = errors.New("it is not known how to reach the managed cluster")

// isOwn tells whether a cluster is that of the operator.
func (c *Controller) isOwn(ctx context.Context, other *apply.Cluster) (bool, error) {
	uids := [2]types.UID{}
	for i, cluster := range []*apply.Cluster{c.management, other} {
		system := &corev1.Namespace{}
		if err := cluster.Client.Get(ctx, types.NamespacedName{Name: "kube-system"}, system); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("find out which cluster the kubeconfig of Secret %s leads to: %w", fleet.SecretExternalManagedKubeconfig, err)
		}
		uids[i] = system.UID
	}
	return uids[0] != "" && uids[0] == uids[1], nil
}

// kubeconfigs makes the kubeconfigs of hosted agents, and returns how long their tokens are good.
func (c *Controller) kubeconfigs(
	ctx context.Context,
	l layout,
	p plan,
	managed managedCluster,
) (secrets []client.Object, due time.Duration, err error) {
	for _, wanted := range p.kubeconfigs {
		stored, err := c.secrets.get(ctx, wanted.secret.Namespace, wanted.secret.Name)
		if err != nil {
			return nil, 0, err
		}
		account := accountkubeconfig.Account{Cluster: managed.Client, Access: managed.access, Name: wanted.account}
		now := c.Clock.Now()
		secret, refresh, err := accountkubeconfig.Renew(ctx, now, account, wanted.secret, stored)
		if err != nil {
			return nil, 0, err
		}
		secrets, due = append(secrets, secret), earliest(due, refresh.Sub(now))
	}
	return secrets, due, c.management.Apply(ctx, l.klusterlet.Name, secrets...)
}

// prune deletes what the Klusterlet no longer consists of: after a change of the mode, of the namespace, or of what is switched on.
func (c *Controller) prune(ctx context.Context, l layout, p plan, managed managedCluster, kubeconfigs []client.Object) error {
	onManagement := slices.Concat(p.onManagement(), kubeconfigs)
	if managed.Cluster == c.management {
		_, err := c.management.Prune(ctx, l.klusterlet.Name, slices.Concat(p.managed, onManagement)...)
		return err
	}
	_, managedErr := managed.Prune(ctx, l.klusterlet.Name, p.managed...)
	_, managementErr := c.management.Prune(ctx, l.klusterlet.Name, onManagement...)
	return errors.Join(managedErr, managementErr)
}

// collision is an error if another Klusterlet already runs its agents in the namespace: they would take each other's credentials. The
// operator runs in a namespace of its own, because that of an agent is deleted with its Klusterlet.
func (c *Controller) collision(ctx context.Context, l layout) error {
	if l.agents == c.Namespace {
		return fmt.Errorf("the operator runs in the namespace %s, which would be deleted with the Klusterlet: choose another one for the agent", l.agents)
	}
	all := &operatorv1.KlusterletList{}
	if err := c.client.List(ctx, all); err != nil {
		return err
	}
	for i := range all.Items {
		other := &all.Items[i]
		if other.Name != l.klusterlet.Name && layoutOf(other).agents == l.agents && isOlder(other, l.klusterlet) {
			return fmt.Errorf("the agent of Klusterlet %s runs in the namespace %s already: choose another spec.namespace", other.Name, l.agents)
		}
	}
	return nil
}

// ownNamespace is an error if the namespace of the service accounts on the managed cluster is part of another Klusterlet, with which it
// would be deleted: of one of this operator, or one that is installed on the managed cluster. What a Klusterlet that is gone has left can
// be taken over.
func (c *Controller) ownNamespace(ctx context.Context, l layout, managed client.Client) error {
	namespace := &corev1.Namespace{}
	if err := managed.Get(ctx, types.NamespacedName{Name: l.accounts}, namespace); err != nil {
		return client.IgnoreNotFound(err)
	}
	name := namespace.Labels[fleet.LabelKlusterlet]
	if name == "" || name == l.klusterlet.Name {
		return nil
	}
	for _, cluster := range []client.Client{c.client, managed} {
		err := cluster.Get(ctx, types.NamespacedName{Name: name}, &operatorv1.Klusterlet{})
		if err == nil {
			return fmt.Errorf("the namespace %s on the managed cluster is that of Klusterlet %s: choose another spec.namespace", l.accounts, name)
		}
		if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			return fmt.Errorf("find out whether the namespace %s on the managed cluster is still that of Klusterlet %s: %w", l.accounts, name, err)
		}
	}
	return nil
}

func isOlder(a, b *operatorv1.Klusterlet) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// addFinalizer puts the finalizer on the Klusterlet, and leaves the rest of it as it is in memory.
func addFinalizer(ctx context.Context, writer client.Client, k *operatorv1.Klusterlet, finalizer string) error {
	written := k.DeepCopy()
	if err := patch.AddFinalizer(ctx, writer, written, finalizer); err != nil {
		return err
	}
	k.Finalizers, k.ResourceVersion = written.Finalizers, written.ResourceVersion
	return nil
}

// earliest is the shorter of two waits, where 0 is none.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
