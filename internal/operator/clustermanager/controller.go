// Package clustermanager installs hubs: it makes what a ClusterManager describes, keeps it so, and reports how it is doing.
package clustermanager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// Options configure the controller.
type Options struct {
	frame.Options
	// SkipRemoveCRDs leaves the CRDs of a hub, and what is stored of them, when its ClusterManager is deleted.
	SkipRemoveCRDs bool
	// AgentImage is the image of the agent in clusters that a hub imports; empty leaves it to the hub.
	AgentImage string
}

// Controller installs the hubs of ClusterManagers. The clusters elsewhere are hubs.
type Controller struct {
	*frame.Operator
	skipRemoveCRDs bool
	agentImage     string
	migrations     apply.Migrations
	// unanswered has the silence of each hub that is removed and whose conversions no pod answers, by the name of its ClusterManager.
	unanswered sync.Map
	// claiming is locked while a hub becomes that of a ClusterManager.
	claiming sync.Mutex
}

// reconciler reconciles ClusterManagers.
func (c *Controller) reconciler() frame.Reconciler[*operatorv1.ClusterManager] {
	return frame.Reconciler[*operatorv1.ClusterManager]{
		Operator: c.Operator, Prototype: &operatorv1.ClusterManager{}, Finalizers: []string{fleet.FinalizerClusterManagerCleanup},
		Install: c.installAndReport, Remove: c.remove, ReportRemoval: reportRemoval, Forget: c.forget,
		Conditions: func(cm *operatorv1.ClusterManager) *[]metav1.Condition { return &cm.Status.Conditions },
	}
}

// installAndReport installs the hub, and reports how its components do, also where they are those of an earlier spec.
func (c *Controller) installAndReport(ctx context.Context, cm *operatorv1.ClusterManager) (time.Duration, error) {
	if err := c.recordRunningMode(ctx, cm); apierrors.IsNotFound(err) {
		return 0, nil
	} else if err != nil {
		return 0, newReport(cm).failed(fleet.ReasonHubResourceApplyFailed, err)
	}
	due, err := c.installOnce(ctx, cm)
	return retry.Soonest(due, (&report{cm}).components(ctx, c.Client, c.Management.Deployment)), err
}

// installOnce installs the hub, unless another ClusterManager has it, or the operator its namespace, or it cannot have its name, which is
// reported until one of them changes. Nothing is refused for its name once it has the finalizer.
func (c *Controller) installOnce(ctx context.Context, cm *operatorv1.ClusterManager) (time.Duration, error) {
	other, err := c.sameHub(ctx, cm)
	if err != nil {
		return 0, err
	}
	if other != "" {
		_ = newReport(cm).failed(fleet.ReasonHubResourceApplyFailed, fmt.Errorf(
			"the hub in this cluster is that of ClusterManager %s: change that one, or use the mode %s for a hub elsewhere",
			other, operatorv1.InstallModeHosted))
		return 0, nil
	}
	if err := errors.Join(checkName(cm), c.checkNamespace(cm)); err != nil {
		_ = newReport(cm).failed(fleet.ReasonHubResourceApplyFailed, err)
		return 0, nil // until it is created under another name, or the operator runs in another namespace
	}
	if err := frame.AddFinalizer(ctx, c.Client, cm, fleet.FinalizerClusterManagerCleanup); err != nil {
		return 0, newReport(cm).failed(fleet.ReasonHubResourceApplyFailed, err)
	}
	return c.installOrRenew(ctx, cm)
}

// installOrRenew installs the hub. If that is refused or fails, what is installed is renewed all the same: it is in use.
func (c *Controller) installOrRenew(ctx context.Context, cm *operatorv1.ClusterManager) (time.Duration, error) {
	due, err := c.install(ctx, cm)
	if meta.IsStatusConditionTrue(cm.Status.Conditions, fleet.ConditionApplied) {
		return due, err
	}
	renewal, renewalErr := c.renewAfter(ctx, cm, err)
	return retry.Soonest(due, renewal), errors.Join(err, renewalErr)
}

// sameHub is an older ClusterManager with the same hub, whose objects have the same names; empty if there is none. Hubs in the operator's
// cluster are the same.
func (c *Controller) sameHub(ctx context.Context, cm *operatorv1.ClusterManager) (string, error) {
	all := &operatorv1.ClusterManagerList{}
	if err := c.Client.List(ctx, all); err != nil || hosted(cm) {
		return "", err
	}
	for i := range all.Items {
		other := &all.Items[i]
		if other.Name != cm.Name && !hosted(other) && frame.Older(other, cm) {
			return other.Name, nil
		}
	}
	return "", nil
}

// checkNamespace is an error if a hub would be installed in the namespace of the operator, which would be deleted with the hub. One that is
// there already is kept up; see own.
func (c *Controller) checkNamespace(cm *operatorv1.ClusterManager) error {
	if hosted(cm) || c.Namespace != fleet.NamespaceHub || controllerutil.ContainsFinalizer(cm, fleet.FinalizerClusterManagerCleanup) {
		return nil
	}
	return fmt.Errorf("the operator runs in the namespace %s, which is that of the hub and would be deleted with it: install the operator in "+
		"another namespace, such as %s", c.Namespace, fleet.NamespaceOperators)
}

// install makes what the ClusterManager describes and writes into its status how far that is. It returns how long nothing is due.
func (c *Controller) install(ctx context.Context, cm *operatorv1.ClusterManager) (time.Duration, error) {
	r := newReport(cm)
	if err := validate(cm); err != nil {
		_ = r.failed(fleet.ReasonHubResourceApplyFailed, err)
		return 0, nil // until the ClusterManager changes
	}
	if err := c.CheckUpgrade(cm); err != nil {
		_ = r.failed(frame.ReasonVersionRefused, err)
		return 0, nil // until its annotations change
	}
	in, err := c.inputs(ctx, cm)
	if err != nil {
		return 0, r.failed(fleet.ReasonHubResourceApplyFailed, err)
	}
	hub, access, err := c.hub(ctx, cm)
	if err != nil {
		return 0, r.failed(fleet.ReasonHubResourceApplyFailed, err)
	}
	p := newPlanned(cm, in)
	r.featureGates(p)
	if p.unexplained, err = c.mayNotExplain(ctx, p); err != nil {
		return 0, r.failed(fleet.ReasonRuntimeResourceApplyFailed, err)
	}
	if p.certificates, err = c.certificates(ctx, p); err != nil {
		return 0, r.failed(fleet.ReasonRuntimeResourceApplyFailed, err)
	}
	r.configuration(p, p.certificates.Problems)
	if err := c.checkOwner(ctx, cm, hub); err != nil {
		return 0, r.failed(fleet.ReasonHubResourceApplyFailed, err)
	}
	due := p.certificates.Due.Sub(c.Clock.Now())

	if err := c.recordMode(ctx, cm, modeOf(cm)); err != nil {
		return 0, r.failed(fleet.ReasonHubResourceApplyFailed, err)
	}
	desired := p.plan()
	if err := c.claim(ctx, cm, hub, desired.crds); err != nil {
		return 0, r.failed(fleet.ReasonCRDApplyFailed, err)
	}
	if err := hub.ApplyCRDs(ctx, cm.Name, desired.crds); err != nil {
		return 0, r.failed(fleet.ReasonCRDApplyFailed, err)
	}
	_ = r.migrated(c.migrate(ctx, hub.Client, desired.crds, false)) // what follows may fail; in the end it is reported again
	if err := hub.Apply(ctx, cm.Name, desired.hub...); err != nil {
		return 0, r.failed(fleet.ReasonHubResourceApplyFailed, err)
	}
	if p.hosted {
		// The accounts exist now, so that they can have tokens.
		var good time.Duration
		if p.accounts, good, err = c.Kubeconfigs(ctx, hub, access, p.kubeconfigs()); err != nil {
			return 0, r.failed(fleet.ReasonServiceAccountSyncFailed, err)
		}
		due, desired.base = retry.Soonest(due, good), p.base()
		frame.AddLabels(p.labels(), desired.all()...)
	}
	if err := c.Management.Apply(ctx, cm.Name, append(desired.base, objects(desired.deployments)...)...); err != nil {
		return 0, r.failed(fleet.ReasonRuntimeResourceApplyFailed, err)
	}
	rolling, err := frame.Rolling(ctx, c.Client, c.Management.Deployment, objects(desired.deployments)...)
	if err != nil {
		return 0, r.failed(fleet.ReasonRuntimeResourceApplyFailed, err)
	}
	if p.formerServices && len(rolling) == 0 && len(p.certificates.Problems) == 0 {
		desired = p.withoutFormerServices(desired)
		if err := hub.ApplyCRDs(ctx, cm.Name, desired.crds); err != nil {
			return 0, r.failed(fleet.ReasonCRDApplyFailed, err)
		}
	}
	if err := applyWebhooks(ctx, hub, cm.Name, desired.webhooks, len(rolling) == 0); err != nil {
		return 0, r.failed(fleet.ReasonWebhookApplyFailed, err)
	}
	if err := c.prune(ctx, cm, hub, desired); err != nil {
		return 0, r.failed(fleet.ReasonRuntimeResourceApplyFailed, err)
	}
	if err := r.applied(c.Management.Scheme, desired, rolling); err != nil {
		return 0, err
	}
	if err := r.migrated(c.migrate(ctx, hub.Client, desired.crds, len(rolling) == 0)); err != nil {
		return 0, err
	}
	if len(rolling) > 0 {
		return frame.PollInterval, nil
	}
	if err := frame.Annotate(ctx, c.Client, cm, upgrade.AnnotationVersion, c.Version); err != nil {
		return due, r.failed(fleet.ReasonHubResourceApplyFailed, err)
	}
	return due, nil
}

// migrate has what is stored in old versions stored in that of the CRDs, once the components run: they convert it, and the API server calls
// them. It returns what is still to be migrated.
func (c *Controller) migrate(ctx context.Context, hub client.Client, applied []*apiextensionsv1.CustomResourceDefinition, running bool) (
	left string, err error,
) {
	pending, err := c.migrations.Pending(ctx, hub, applied)
	if err != nil {
		return "", err
	}
	if !running {
		return apply.DescribePending(pending), nil
	}
	var failures []error
	for _, crd := range pending {
		failures = append(failures, apply.MigrateCRD(ctx, hub, crd))
	}
	return "", errors.Join(failures...)
}

// prune deletes what the ClusterManager no longer consists of.
func (c *Controller) prune(ctx context.Context, cm *operatorv1.ClusterManager, hub *apply.Cluster, desired *plan) error {
	for _, cluster := range distinct(hub, c.Management) {
		if _, err := cluster.Prune(ctx, cm.Name, append(desired.all(), c.own(cm, cluster)...)...); err != nil {
			return err
		}
	}
	return nil
}

// distinct are the clusters of a ClusterManager, the hub first.
func distinct(hub, management *apply.Cluster) []*apply.Cluster {
	if hub == management {
		return []*apply.Cluster{hub}
	}
	return []*apply.Cluster{hub, management}
}

// hub returns the hub of the ClusterManager, and how it is reached.
func (c *Controller) hub(ctx context.Context, cm *operatorv1.ClusterManager) (*apply.Cluster, *rest.Config, error) {
	if !hosted(cm) {
		c.Elsewhere.Disconnect(cm.Name)
		return c.Management, c.Access, nil
	}
	secret, err := c.Secrets.Get(ctx, cm.Name, fleet.SecretExternalHubKubeconfig)
	if err != nil {
		return nil, nil, err
	}
	if secret == nil {
		return nil, nil, fmt.Errorf("there is no Secret %s/%s: store a kubeconfig of the hub there, under the key %s", cm.Name,
			fleet.SecretExternalHubKubeconfig, fleet.KeyKubeconfig)
	}
	hub, access, err := c.Elsewhere.Connect(ctx, cm.Name, secret)
	return hub, access, unreached(err)
}
