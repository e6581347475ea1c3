// Package clustermanager installs hubs: it makes what a ClusterManager describes, keeps it so, and reports how it is doing.
package clustermanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/operator/apply"
	"github.com/capstan-io/capstan/internal/operator/crds"
	"github.com/capstan-io/capstan/internal/operator/pods"
	"github.com/capstan-io/capstan/internal/operator/remote"
	"github.com/capstan-io/capstan/internal/operator/rights"
	"github.com/capstan-io/capstan/internal/operator/upgrade"
)

// safetyNet is how often a ClusterManager is looked at without an event: for what is not watched, such as certificates of users.
const safetyNet = 10 * time.Minute

// whileUnwatched is how often a ClusterManager is looked at of which something changes without an event, because it may not be watched.
const whileUnwatched = time.Minute

// Options configure the controller.
type Options struct {
	// Namespace is that of the operator.
	Namespace string
	// Image replaces the images that the API defaults to; empty leaves them.
	Image string
	// Version is that of the operator.
	Version string
	// Replicas is the number of replicas of each component; 0 chooses by the number of nodes.
	Replicas int32
	// Nodes selects the nodes that count for the number of replicas; nil counts all that pods can run on.
	Nodes labels.Selector
	// PullSecret is the name of the Secret in Namespace to pull images with, which is copied to where components run if it exists.
	PullSecret string
	// SyncLabels copies the labels of a ClusterManager to what it consists of.
	SyncLabels bool
	// SkipRemoveCRDs leaves the CRDs of a hub, and what is stored of them, when its ClusterManager is deleted.
	SkipRemoveCRDs bool
	// Clock is the source of time; nil means the system clock.
	Clock clock.Clock
}

// Controller reconciles ClusterManagers.
type Controller struct {
	Options
	// client reads ClusterManagers, nodes and the inputs in the operator's namespace from a cache.
	client client.Client
	// missing are the watches that are not permitted.
	missing  []rights.Watch
	recorder events.EventRecorder
	// management is the cluster of the operator, hubs are those of hosted ClusterManagers.
	management *apply.Cluster
	hubs       *remote.Clusters
	// access is how the operator's cluster is reached.
	access     *rest.Config
	migrations crds.Migrations
}

// Reconcile brings what there is to what there should be, in stages, each of which needs those before it, and reports the first that fails.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if !c.management.WaitForCacheSync(ctx) {
		return ctrl.Result{}, errors.New("what is installed is not known yet")
	}
	cm := &operatorv1.ClusterManager{}
	if err := c.client.Get(ctx, req.NamespacedName, cm); err != nil {
		if apierrors.IsNotFound(err) {
			c.hubs.Disconnect(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := c.recallMode(ctx, cm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !cm.DeletionTimestamp.IsZero() {
		return c.remove(ctx, cm)
	}
	if other, err := c.sameHub(ctx, cm); err != nil || other != "" {
		return ctrl.Result{}, errors.Join(err, c.refuse(ctx, cm, other))
	}
	if err := patch.AddFinalizer(ctx, c.client, cm, fleet.FinalizerClusterManagerCleanup); err != nil {
		return ctrl.Result{}, err
	}
	before := cm.DeepCopy()
	due, err := c.install(ctx, cm)
	if c.reportRights(cm) && due > 0 {
		due = min(due, whileUnwatched)
	}
	before.Annotations, before.ResourceVersion = cm.Annotations, cm.ResourceVersion // the mode and the version may have been written
	if _, reportErr := patch.Status(ctx, c.client, cm, before); reportErr != nil {
		return ctrl.Result{}, errors.Join(err, reportErr)
	}
	return ctrl.Result{RequeueAfter: due}, err
}

// reportRights says which rules the operator would need for what it leaves out, and tells whether there are any.
func (c *Controller) reportRights(cm *operatorv1.ClusterManager) bool {
	rules := slices.Concat(rights.Rules(c.missing), c.management.MissingRules(), c.hubs.MissingRules(cm.Name))
	rights.Report(c.recorder, cm, &cm.Status.Conditions, rules)
	return len(rules) > 0
}

// sameHub is an older ClusterManager with the same hub, whose objects have the same names; empty if there is none. Hubs in the operator's
// cluster are the same.
func (c *Controller) sameHub(ctx context.Context, cm *operatorv1.ClusterManager) (string, error) {
	all := &operatorv1.ClusterManagerList{}
	if err := c.client.List(ctx, all); err != nil || hosted(cm) {
		return "", err
	}
	for i := range all.Items {
		other := &all.Items[i]
		if other.Name != cm.Name && !hosted(other) && isOlder(other, cm) {
			return other.Name, nil
		}
	}
	return "", nil
}

func isOlder(a, b *operatorv1.ClusterManager) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// refuse reports that another ClusterManager has the hub, until one of them changes.
func (c *Controller) refuse(ctx context.Context, cm *operatorv1.ClusterManager, other string) error {
	if other == "" {
		return nil
	}
	before := cm.DeepCopy()
	_ = newReport(cm).failed(fleet.ReasonHubResourceApplyFailed, fmt.Errorf(
		"the hub in this cluster is that of ClusterManager %s: change that one, or use the mode %s for a hub elsewhere", other, operatorv1.InstallModeHosted))
	_, err := patch.Status(ctx, c.client, cm, before)
	return err
}

// install makes what the ClusterManager describes and writes into its status how far that is. It returns when something is due.
func (c *Controller) install(ctx context.Context, cm *operatorv1.ClusterManager) (time.Duration, error) {
	r := newReport(cm)
	if err := validate(cm); err != nil {
		_ = r.failed(fleet.ReasonHubResourceApplyFailed, err)
		return 0, nil // until the ClusterManager changes
	}
	if err := upgrade.Check(cm.Annotations[upgrade.AnnotationVersion], c.Version, cm.Annotations); err != nil {
		return 0, r.failed(reasonUpgradeRefused, err)
	}
	in, err := c.inputs(ctx, cm)
	if err != nil {
		return 0, r.failed(fleet.ReasonHubResourceApplyFailed, err)
	}
	hub, access, err := c.hub(ctx, cm)
	if err != nil {
		return 0, r.failed(fleet.ReasonHubResourceApplyFailed, err)
	}
	if err := c.ownHub(ctx, cm, hub); err != nil {
		return 0, r.failed(fleet.ReasonHubResourceApplyFailed, err)
	}
	if hosted(cm) {
		in.apiServerPorts = distinctPorts(append(in.apiServerPorts, portsOf(access)...))
	}
	p := newPlanned(cm, in)
	r.configuration(p)
	due := c.Clock.Now().Add(safetyNet)
	if p.certificates, err = c.certificates(ctx, p); err != nil {
		return 0, r.failed(fleet.ReasonRuntimeResourceApplyFailed, err)
	}
	r.certificates(p.certificates.Problems)
	due = earliest(due, p.certificates.Due)

	if err := c.rememberMode(ctx, cm, modeOf(cm)); err != nil {
		return 0, err
	}
	wanted := p.plan()
	if err := crds.Apply(ctx, hub, cm.Name, wanted.crds); err != nil {
		return 0, r.failed(fleet.ReasonCRDApplyFailed, err)
	}
	if err := hub.Apply(ctx, cm.Name, wanted.hub...); err != nil {
		return 0, r.failed(fleet.ReasonHubResourceApplyFailed, err)
	}
	if p.hosted {
		// The accounts exist now, so that they can have tokens.
		refresh, err := c.hostedAccounts(ctx, &p, hub, access)
		if err != nil {
			return 0, r.failed(fleet.ReasonServiceAccountSyncFailed, err)
		}
		due, wanted.base = earliest(due, refresh), p.base()
		p.label(wanted)
	}
	if err := c.management.Apply(ctx, cm.Name, append(wanted.base, objects(wanted.deployments)...)...); err != nil {
		return 0, r.failed(fleet.ReasonRuntimeResourceApplyFailed, err)
	}
	rolling, err := c.rollout(ctx, r, p, wanted.deployments)
	if err != nil {
		return 0, r.failed(fleet.ReasonRuntimeResourceApplyFailed, err)
	}
	if p.formerServices && len(rolling) == 0 && len(p.certificates.Problems) == 0 {
		wanted = p.withoutFormerServices(wanted)
		if err := crds.Apply(ctx, hub, cm.Name, wanted.crds); err != nil {
			return 0, r.failed(fleet.ReasonCRDApplyFailed, err)
		}
	}
	if err := applyWebhooks(ctx, hub, cm.Name, wanted.webhooks, len(rolling) == 0); err != nil {
		return 0, r.failed(fleet.ReasonWebhookApplyFailed, err)
	}
	if err := c.prune(ctx, cm, hub, wanted); err != nil {
		return 0, r.failed(fleet.ReasonRuntimeResourceApplyFailed, err)
	}
	if err := r.applied(c.management.Scheme, wanted, rolling); err != nil {
		return 0, err
	}
	if err := r.migrated(c.migrate(ctx, hub.Client, wanted.crds, len(rolling) == 0)); err != nil {
		return 0, err
	}
	if len(rolling) > 0 {
		return whileBusy, nil
	}
	return due.Sub(c.Clock.Now()), upgrade.Remember(ctx, c.client, cm, c.Version)
}

// migrate has what is stored in old versions stored in that of the CRDs, once the components run: they convert it, and the API server asks
// them. It returns what is still to be migrated.
func (c *Controller) migrate(ctx context.Context, hub client.Client, applied []*apiextensionsv1.CustomResourceDefinition, running bool) (
	left string, err error,
) {
	pending, err := c.migrations.Pending(ctx, hub, applied)
	if err != nil {
		return "", err
	}
	if !running {
		return crds.Describe(pending), nil
	}
	var failures []error
	for _, crd := range pending {
		failures = append(failures, crds.Migrate(ctx, hub, crd))
	}
	return "", errors.Join(failures...)
}

// prune deletes what the ClusterManager no longer consists of. CRDs stay: they hold what users have stored.
func (c *Controller) prune(ctx context.Context, cm *operatorv1.ClusterManager, hub *apply.Cluster, wanted *plan) error {
	keep := wanted.all()
	for _, cluster := range distinct(hub, c.management) {
		served, err := cluster.List(ctx, cm.Name, crds.Kind)
		if err != nil {
			return err
		}
		if _, err := cluster.Prune(ctx, cm.Name, append(served, keep...)...); err != nil {
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

// rollout returns the Deployments that do not run yet as they are written, and reports on those that the status tells about.
func (c *Controller) rollout(ctx context.Context, r *report, p planned, wanted []*appsv1.Deployment) (rolling []string, err error) {
	for _, deployment := range wanted {
		live, err := c.management.Deployment(ctx, client.ObjectKeyFromObject(deployment))
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err != nil || !ready(live, deployment) {
			text := deployment.Name
			if reason := pods.Waiting(ctx, c.management.Client, deployment); reason != "" {
				text += " (" + reason + ")"
			}
			rolling = append(rolling, text)
		}
		r.component(ctx, c.management.Client, p, deployment, live, err)
	}
	return rolling, nil
}

// hub returns the hub of the ClusterManager, and how it is reached.
func (c *Controller) hub(ctx context.Context, cm *operatorv1.ClusterManager) (*apply.Cluster, *rest.Config, error) {
	if !hosted(cm) {
		c.hubs.Disconnect(cm.Name)
		return c.management, c.access, nil
	}
	secret := &corev1.Secret{}
	name := types.NamespacedName{Namespace: cm.Name, Name: fleet.SecretExternalHubKubeconfig}
	if err := c.client.Get(ctx, name, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil, fmt.Errorf("there is no Secret %s: store a kubeconfig of the hub there, under the key %s", name, fleet.KeyKubeconfig)
		}
		return nil, nil, err
	}
	return c.hubs.Connect(ctx, cm.Name, secret)
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
