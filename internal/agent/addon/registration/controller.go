// Package registration gets the agents of add-ons their access to the hub: for each registration of an add-on a Secret with a
// certificate or a token, which it keeps valid.
package registration

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/addon/install"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// resync bounds how late a machine that was suspended renews a credential that is due, and how long a deleted namespace is missing. It
// costs one request on each cluster.
const resync = 10 * time.Minute

// The wait after a failure doubles from the first to the last.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Options configure the controller.
type Options struct {
	// Hub has the ManagedClusterAddOns, of which the controller reads the cache.
	Hub cluster.Cluster
	// Uncached makes requests for credentials on the hub, without a cache.
	Uncached client.WithWatch
	// Identity is the agent's own.
	Identity identity.Identity
	// Author is as whom Uncached authenticates, if that is not the user of Identity.
	Author string
	// HubHash distinguishes the Secrets for this hub from those for others.
	HubHash string
	// Driver is how add-ons get access to the API server of the hub. Certificates of other signers take certificate requests in any case.
	Driver addonv1beta1.KubeClientDriver
	// Brokered says that Uncached is a broker: add-ons get certificates of other signers, and no access to the API server of the hub, whose
	// address the agent does not know.
	Brokered bool
	// CertificateLifetime requests a lifetime of certificates; zero leaves it to the hub.
	CertificateLifetime time.Duration
	// TokenLifetime requests a lifetime of tokens; zero leaves it to the hub.
	TokenLifetime time.Duration
	// Store has the agent's own hub kubeconfig, from which those of the add-ons are made, and the folder for keys of requests.
	Store *hubkubeconfig.Store
	// Managed and Hosting are the clusters on which agents of add-ons run: the managed one, and for add-ons in hosted mode the one
	// that the agent itself runs in.
	Managed, Hosting *rest.Config
	// Record takes the events of requests.
	Record clientcert.Recorder
	Clock  clock.Clock
}

// Controller reconciles ManagedClusterAddOns: all of an agent's, with all of their Secrets.
type Controller struct {
	Options
	hub             client.Client
	clusters        map[string]*agentCluster
	requests        *requests
	inventory       *secretInventory
	renewalFraction float64 // of its lifetime that a credential has left when it is renewed
	renewed         map[id]time.Time
	receipts        map[id]clientcert.Receipt
	// silent is since when the driver of an add-on could have been reported.
	silent map[types.NamespacedName]time.Time
	// agents knows where the agents of add-ons run.
	agents install.Modes
	// ready is until when a cluster is taken to have the default namespace of agents of add-ons.
	ready map[string]time.Time
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	c := &Controller{
		Options: o, hub: o.Hub.GetClient(), requests: &requests{}, renewalFraction: clientcert.RandomRenewalFraction(),
		renewed: map[id]time.Time{}, receipts: map[id]clientcert.Receipt{}, silent: map[types.NamespacedName]time.Time{},
		clusters: map[string]*agentCluster{}, ready: map[string]time.Time{},
	}
	for name, config := range map[string]*rest.Config{fleet.AddOnCredentialManaged: o.Managed, fleet.AddOnCredentialHosted: o.Hosting} {
		var err error
		if c.clusters[name], err = newAgentCluster(name, config); err != nil {
			return err
		}
	}
	c.inventory = &secretInventory{
		clusters: c.clusters, selector: client.MatchingLabels{fleet.LabelClusterName: o.Identity.Cluster}, hubHash: o.HubHash, clock: o.Clock,
	}
	return ctrl.NewControllerManagedBy(mgr).Named("addon-managedclusteraddon-register").
		WithOptions(controller.Options{
			// One at a time: what it remembers of Secrets has no lock.
			SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 1,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		WatchesRawSource(source.Kind(o.Hub.GetCache(), &addonv1beta1.ManagedClusterAddOn{},
			&handler.TypedEnqueueRequestForObject[*addonv1beta1.ManagedClusterAddOn]{})).
		WatchesRawSource(c.clusters[fleet.AddOnCredentialManaged].watched).
		WatchesRawSource(c.clusters[fleet.AddOnCredentialHosted].watched).
		WatchesRawSource(c.requests).
		WatchesRawSource(c.inventory).
		Complete(c)
}

// Reconcile keeps the Secrets of one add-on: it makes and renews those that its registrations are for, removes those that
// none is for any more, and reports. It requeues the add-on for when the next one is due.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	if err := c.hub.Get(ctx, req.NamespacedName, addOn); err != nil {
		if apierrors.IsNotFound(err) {
			delete(c.silent, req.NamespacedName)
			c.agents.Forget(req.NamespacedName)
			return ctrl.Result{}, c.release(ctx, req.NamespacedName, nil)
		}
		return ctrl.Result{}, fmt.Errorf("get ManagedClusterAddOn %s: %w", req, err)
	}
	cluster, wait := c.clusterOf(addOn)
	errs := []error{c.prepare(ctx, addOn, cluster)}
	before := addOn.DeepCopy()
	report := newReport(c.Clock.Now())
	switch all, err := c.desiredSecrets(ctx, addOn, cluster); {
	case errors.Is(err, errNotYet):
		if wait == 0 {
			wait = lastRetry // a safety net: a change of the agent brings it back
		}
		report.requeueBy(report.now.Add(wait))
	case err != nil:
		return ctrl.Result{}, err
	default:
		errs = append(errs, c.reconcileSecrets(ctx, addOn, all, report)...)
		report.write(&addOn.Status.Conditions)
	}
	// That does not depend on the Secrets: the manager that the Secrets wait for may itself wait for the driver.
	report.requeueBy(c.declareDriver(addOn, report.reportsCertificate()))
	if _, err := patch.Status(ctx, c.hub, addOn, before); err != nil && !apierrors.IsNotFound(err) {
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: firstRetry}, errors.Join(errs...)
		}
		errs = append(errs, err)
	}
	return ctrl.Result{RequeueAfter: max(report.next.Sub(c.Clock.Now()), time.Nanosecond)}, errors.Join(errs...)
}

// reconcileSecrets makes the Secrets of an add-on what they should be, and removes those that are not desired any more.
func (c *Controller) reconcileSecrets(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, all []desiredSecret,
	report *report) (errs []error) {
	owner := client.ObjectKeyFromObject(addOn)
	c.follow(owner, all)
	for i := range all {
		if all[i].refused != nil {
			report.add(&all[i], secretState{err: all[i].refused}) // no attempt will succeed
			continue
		}
		state := c.reconcileSecret(ctx, addOn, &all[i])
		report.add(&all[i], state)
		errs = append(errs, state.err)
	}
	// An add-on that is being deleted may need its credentials to the end.
	if addOn.DeletionTimestamp.IsZero() {
		errs = append(errs, c.release(ctx, owner, all))
	}
	return errs
}

// prepare makes the usual namespace of agents before the manifests of an add-on come, which fail as long as it is missing.
func (c *Controller) prepare(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, where string) error {
	if where == "" || c.Clock.Now().Before(c.ready[where]) || addOn.Status.Namespace != fleet.NamespaceAgentAddOn ||
		!addOn.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := c.clusters[where].ensureNamespace(ctx, fleet.NamespaceAgentAddOn); err != nil {
		return err
	}
	c.ready[where] = c.Clock.Now().Add(resync)
	return nil
}

// follow watches the Secrets of an add-on.
func (c *Controller) follow(owner types.NamespacedName, all []desiredSecret) {
	for name, cluster := range c.clusters {
		var secrets []types.NamespacedName
		for i := range all {
			if all[i].cluster == name {
				secrets = append(secrets, all[i].secret)
			}
		}
		cluster.watched.Follow(owner, secrets...)
	}
}

// secretState is the state of a Secret.
type secretState struct {
	// notBefore and notAfter are the validity of the credential in it; zero if there is no valid one.
	notBefore, notAfter time.Time
	// due is when to reconcile again; zero leaves it to events.
	due time.Time
	// lack is why there is no valid credential, while one is requested.
	lack string
	err  error
}

// errContested says that two agents write the same Secret. Each would request another credential whenever the other has written its own.
var errContested = errors.New("the agent of another hub writes it, too; give one of the two add-ons another namespace")

// errNoCredential says that a Secret does not exist, or has no credential in it.
var errNoCredential = errors.New("there is no credential in it")

// reconcileSecret makes a Secret what it should be.
func (c *Controller) reconcileSecret(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, w *desiredSecret) secretState {
	owner := client.ObjectKeyFromObject(addOn)
	secret, found, known := c.clusters[w.cluster].watched.Get(owner, w.secret)
	if !known {
		return secretState{}
	}
	c.inventory.add(w.id())
	if found && secret.DeletionTimestamp.IsZero() && c.complete(w, secret) {
		if now, err := c.read(addOn, w, secret); err == nil && c.Clock.Now().Before(now.due) {
			return now
		}
	}
	return c.refresh(ctx, addOn, w)
}

// refresh brings a Secret up to date that is out of date by the watch, which may be behind what was written a moment ago.
func (c *Controller) refresh(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, w *desiredSecret) secretState {
	live := &corev1.Secret{}
	if err := c.clusters[w.cluster].client.Get(ctx, w.secret, live); client.IgnoreNotFound(err) != nil {
		return secretState{err: fmt.Errorf("get Secret %s: %w", w.secret, err)}
	}
	if again := c.renewed[w.id()].Add(clientcert.RetryRenewal); c.checkHub(w, live) != nil && c.Clock.Now().Before(again) {
		return secretState{due: again, err: errContested}
	}
	if w.request == nil {
		return c.reconcileToken(ctx, addOn, w, live)
	}
	return c.reconcileCertificate(ctx, addOn, w, live)
}

// read returns the state of the credential in a Secret, and fails if it is not the one that is desired.
func (c *Controller) read(addOn *addonv1beta1.ManagedClusterAddOn, w *desiredSecret, secret *corev1.Secret) (secretState, error) {
	if w.request == nil {
		return c.readToken(addOn, w, secret)
	}
	return c.readCertificate(w, secret)
}

// renewal is when a credential is due.
func (c *Controller) renewal(w *desiredSecret, notBefore, notAfter time.Time) secretState {
	receipt := c.receipts[w.id()]
	due := receipt.RenewalTime(notBefore, notAfter, c.Clock.Now(), c.renewalFraction)
	c.receipts[w.id()] = receipt
	// By a clock that is far ahead of the hub's, the next one is due at once.
	pause := min(clientcert.RetryRenewal, notAfter.Sub(notBefore)/2)
	if again := c.renewed[w.id()].Add(pause); due.Before(again) {
		due = again
	}
	now := secretState{notBefore: notBefore, notAfter: notAfter, due: due}
	if !c.Clock.Now().Before(notAfter) {
		now.lack = fmt.Sprintf("the credential expired on %s", notAfter.UTC().Format(time.RFC3339))
	}
	return now
}

// release removes the Secrets of an add-on that are not desired any more.
func (c *Controller) release(ctx context.Context, owner types.NamespacedName, all []desiredSecret) error {
	if len(all) == 0 {
		c.follow(owner, nil)
	}
	still := map[id]bool{}
	for i := range all {
		still[all[i].id()] = true
	}
	var errs []error
	for _, old := range c.inventory.of(owner.Name) {
		if still[old] {
			continue
		}
		c.requests.drop(old)
		delete(c.renewed, old)
		delete(c.receipts, old)
		key := client.ObjectKey{Namespace: old.namespace, Name: old.name}
		err := errors.Join(c.pendingKey(old, nil).Remove(), c.clusters[old.cluster].remove(ctx, key, c.marks(old.addOn, old.cluster)))
		if err == nil {
			c.inventory.remove(old)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
