// Package klusterlet installs agents: it makes what a Klusterlet describes, on the cluster where the agent runs and on the one that it
// manages, keeps it so, and reports how it is doing.
package klusterlet

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/klusterlet/hubaccess"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// Options configure the operator.
type Options struct {
	frame.Options
	// AWSCLIImage is the image with the AWS command line, for agents that register by AWS IAM; empty if they make tokens themselves.
	AWSCLIImage string
	// WithoutAddOnNamespace leaves out the namespace for the agents of add-ons.
	WithoutAddOnNamespace bool
}

// Controller installs the agents of Klusterlets. The clusters elsewhere are those that hosted ones manage.
type Controller struct {
	*frame.Operator
	options Options
	hub     *hubaccess.Checks
	// unreachable has when this process last found the managed cluster of a Klusterlet unreachable, by its name, unless it has reached it
	// since.
	unreachable sync.Map
}

// reconciler reconciles Klusterlets.
func (c *Controller) reconciler() frame.Reconciler[*operatorv1.Klusterlet] {
	return frame.Reconciler[*operatorv1.Klusterlet]{
		Operator: c.Operator, Prototype: &operatorv1.Klusterlet{},
		Finalizers: []string{fleet.FinalizerKlusterletCleanup, fleet.FinalizerKlusterletHostedCleanup},
		Install:    c.install, Remove: c.removeAll, ReportRemoval: reportRemoval, Forget: c.forget,
		Conditions: func(k *operatorv1.Klusterlet) *[]metav1.Condition { return &k.Status.Conditions },
	}
}

// forget drops what is known of a Klusterlet that is gone.
func (c *Controller) forget(klusterlet string) {
	c.hub.Forget(klusterlet)
	c.unreachable.Delete(klusterlet)
}

// refusedInterval is how often a Klusterlet is looked at again that may not be installed: there is no event for all that may be in its way.
const refusedInterval = time.Minute

// install makes what the Klusterlet describes and writes into its status how far that is. It returns how long nothing is due.
func (c *Controller) install(ctx context.Context, k *operatorv1.Klusterlet) (time.Duration, error) {
	l, r := layoutOf(k), newReport(k)
	r.gates(l)
	reason, refused, err := c.refusal(ctx, l)
	if err != nil {
		return 0, r.failed(fleet.ReasonKlusterletApplyFailed, err)
	}
	if refused != nil {
		_ = r.failed(reason, refused)
		due, err := c.observe(ctx, r, l)
		return due, errors.Join(err, c.renewRefused(ctx, l))
	}
	if err := frame.AddFinalizer(ctx, c.Client, k, fleet.FinalizerKlusterletCleanup); err != nil {
		return 0, r.failed(fleet.ReasonKlusterletApplyFailed, err)
	}
	p, due, err := c.applyAll(ctx, r, l)
	if err != nil {
		running, _, listErr := c.running(ctx, l)
		r.deployments(ctx, c.Client, c.Management.Deployment, running)
		return 0, errors.Join(err, listErr)
	}
	r.deployments(ctx, c.Client, c.Management.Deployment, l)
	if err := c.recordInstalled(ctx, k, p, c.Management.Deployment); err != nil {
		return due, r.failed(fleet.ReasonKlusterletApplyFailed, err)
	}
	return due, nil
}

// recordInstalled records the version of the operator once the agent runs as planned: its Deployments and pods have events until then.
func (c *Controller) recordInstalled(ctx context.Context, k *operatorv1.Klusterlet, p plan, get frame.GetDeployment) error {
	rolling, err := frame.Rolling(ctx, c.Client, get, p.deployments...)
	if err != nil || len(rolling) > 0 {
		return err
	}
	return frame.Annotate(ctx, c.Client, k, upgrade.AnnotationVersion, c.Version)
}

// refusal says why nothing of the Klusterlet may be installed, with the reason for its condition. The error is why it cannot be found out.
func (c *Controller) refusal(ctx context.Context, l layout) (reason string, refused, err error) {
	used, err := c.checkAgentNamespace(ctx, l)
	if refused = errors.Join(validate(l.klusterlet), used); refused != nil {
		return fleet.ReasonKlusterletApplyFailed, refused, nil
	}
	if err != nil {
		return "", nil, err
	}
	return frame.ReasonVersionRefused, c.CheckUpgrade(l.klusterlet), nil
}

// applyAll makes what the Klusterlet describes, from the connection of its agent to the hub on. It reports what fails, and returns what is
// planned, and how long nothing is due.
func (c *Controller) applyAll(ctx context.Context, r *report, l layout) (p plan, due time.Duration, err error) {
	due, connection, err := c.connection(ctx, l)
	if err != nil {
		return plan{}, 0, r.failed(fleet.ReasonKlusterletApplyFailed, err)
	}
	r.connection(ctx, connection)
	in, err := c.inputs(ctx, l)
	if err != nil {
		return plan{}, 0, r.failed(fleet.ReasonKlusterletApplyFailed, err)
	}
	before, err := c.former(ctx, l, connection)
	if err != nil {
		return plan{}, 0, r.failed(fleet.ReasonKlusterletApplyFailed, err)
	}
	p = planFor(l, in)
	next, err := c.apply(ctx, r, l, p, before)
	if err != nil {
		return plan{}, 0, err
	}
	return p, retry.Soonest(due, next), r.applied(c.Management.Scheme, p, before)
}

// apply makes what is planned, in stages, each of which needs those before it. It reports the first that fails, and returns how long the
// tokens of hosted agents are good, or the pods of the former agent may yet take to end.
func (c *Controller) apply(ctx context.Context, r *report, l layout, p plan, before former) (due time.Duration, err error) {
	managed, err := c.managedCluster(ctx, r, l)
	if err != nil {
		return 0, c.applyWithoutManaged(ctx, r, l, p, err)
	}
	if err := errors.Join(c.removeHosted(ctx, l), c.checkManaged(ctx, l, managed)); err != nil {
		return 0, r.failed(fleet.ReasonManagedClusterResourceApplyFailed, err)
	}
	if err := managed.ApplyCRDs(ctx, sharedInstallation, p.crds); err != nil {
		return 0, r.failed(fleet.ReasonCRDApplyFailed, err)
	}
	if err := errors.Join(
		managed.Apply(ctx, sharedInstallation, p.shared...),
		managed.Apply(ctx, l.klusterlet.Name, p.managed...),
	); err != nil {
		return 0, r.failed(fleet.ReasonManagedClusterResourceApplyFailed, err)
	}
	if err := c.Management.Apply(ctx, l.klusterlet.Name, p.management...); err != nil {
		return 0, r.failed(fleet.ReasonManagementClusterResourceApplyFailed, err)
	}
	kubeconfigs, renewal, err := c.Kubeconfigs(ctx, managed.Cluster, managed.access, p.kubeconfigs)
	if err == nil {
		err = c.Management.Apply(ctx, l.klusterlet.Name, kubeconfigs...)
	}
	if err != nil {
		return 0, r.failed(fleet.ReasonManagementClusterResourceApplyFailed, err)
	}
	if err := c.Management.Apply(ctx, l.klusterlet.Name, p.deployments...); err != nil {
		return 0, r.failed(fleet.ReasonKlusterletApplyFailed, err)
	}
	pruneErr := c.prune(ctx, l, p, managed, slices.Concat(kubeconfigs, before.unpruned()))
	// An object that cannot be pruned must not keep the former agent running beside the present one.
	ends, leaveErr := c.leave(ctx, l, before)
	if err := errors.Join(pruneErr, leaveErr); err != nil {
		return 0, r.failed(fleet.ReasonKlusterletApplyFailed, err)
	}
	if r.advice, err = c.advice(ctx, l, before, managed); err != nil {
		return 0, r.failed(fleet.ReasonKlusterletApplyFailed, err)
	}
	return retry.Soonest(renewal, ends), nil
}

// applyWithoutManaged keeps what there is where the agent runs while the managed cluster cannot be reached: the agent may be able to, or
// at least the namespace that the kubeconfig belongs into.
func (c *Controller) applyWithoutManaged(ctx context.Context, r *report, l layout, p plan, unreachable error) error {
	objects := p.management[:1:1] // the namespace
	if controllerutil.ContainsFinalizer(l.klusterlet, fleet.FinalizerKlusterletHostedCleanup) {
		objects = p.onManagement()
	}
	if err := c.Management.Apply(ctx, l.klusterlet.Name, objects...); err != nil {
		return errors.Join(unreachable, r.failed(fleet.ReasonManagementClusterResourceApplyFailed, err))
	}
	return r.failed(fleet.ReasonManagedClusterResourceApplyFailed, unreachable)
}

// prune deletes what the Klusterlet no longer consists of: after a change of the mode, of the namespace, or of what is switched on. It
// keeps what is planned, and more on the cluster where the agent runs.
func (c *Controller) prune(ctx context.Context, l layout, p plan, managed managedCluster, more []client.Object) error {
	onManagement := slices.Concat(p.onManagement(), more)
	if managed.here { // one that prunes what the other has applied would undo it
		return c.pruneOn(ctx, l, c.Management, slices.Concat(p.managed, onManagement))
	}
	return errors.Join(c.pruneOn(ctx, l, managed.Cluster, p.managed), c.pruneOn(ctx, l, c.Management, onManagement))
}

// pruneOn prunes one of the clusters. A namespace that has another use is left there, and released once nothing in it is kept: what is kept
// would not be found again without the labels of its namespace.
func (c *Controller) pruneOn(ctx context.Context, l layout, cluster *apply.Cluster, keep []client.Object) error {
	made, err := cluster.List(ctx, l.klusterlet.Name, namespaces)
	if err != nil {
		return err
	}
	unused := slices.DeleteFunc(made, func(o client.Object) bool { return hasNamespace(keep, o.GetName()) })
	used, err := c.leaveUsed(ctx, l, cluster, unused)
	if err != nil {
		return err
	}
	left, err := cluster.Prune(ctx, l.klusterlet.Name, slices.Concat(keep, used)...)
	if err != nil || len(left) > 0 {
		return err
	}
	return release(ctx, cluster, slices.DeleteFunc(used, func(namespace client.Object) bool { return isNamespaceOfAny(keep, namespace) }))
}

// isNamespaceOfAny reports whether any of the objects is in a namespace.
func isNamespaceOfAny(objects []client.Object, namespace client.Object) bool {
	return slices.ContainsFunc(objects, func(o client.Object) bool { return o.GetNamespace() == namespace.GetName() })
}
