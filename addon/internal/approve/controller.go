// Package approve approves the certificate signing requests of add-ons.
package approve

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/internal/catalogue"
	"github.com/capstan-io/capstan/addon/internal/registrations"
	"github.com/capstan-io/capstan/addon/internal/requeue"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

const (
	// workers is how many requests are judged at once.
	workers = 10
	// untilAccepted is when the request of a denied cluster is reconciled again: this controller does not watch clusters.
	untilAccepted = time.Minute
)

// Options configure the controller.
type Options struct {
	// Catalogue has the add-ons whose requests the controller approves.
	Catalogue catalogue.Catalogue
	// Requeue enqueues single add-ons again; nil enqueues none.
	Requeue *requeue.AddOns
	// GRPCServer is the user as whom the gRPC server of the hub requests certificates, in the name of agents.
	GRPCServer string
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles the CertificateSigningRequests of add-ons.
type Controller struct {
	Options
	client   client.Client
	recorder events.EventRecorder
}

// New returns a Controller that works through the client.
func New(c client.Client, recorder events.EventRecorder, o Options) *Controller {
	return &Controller{Options: o, client: c, recorder: recorder}
}

// Register adds the controller to the manager, whose cache needs the index of package signingrequest. When an add-on
// is enqueued again, so are its undecided requests.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), mgr.GetEventRecorder("addon-csr-approving-controller"), o)
	withheld := signingrequest.OfAddOn(c.client, signingrequest.Undecided)
	return ctrl.NewControllerManagedBy(mgr).Named("addon-csr-approve").
		For(&certificatesv1.CertificateSigningRequest{}, builder.WithPredicates(predicate.NewPredicateFuncs(ofAddOn))).
		Watches(&addonv1beta1.ManagedClusterAddOn{}, handler.EnqueueRequestsFromMapFunc(withheld),
			builder.WithPredicates(signingrequest.AddOnChanged())).
		WatchesRawSource(o.Requeue.Source(withheld)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

func ofAddOn(o client.Object) bool {
	return o.GetLabels()[fleet.LabelAddOnName] != "" && o.GetLabels()[fleet.LabelClusterName] != ""
}

// Reconcile approves the request if the agent of the right cluster requests exactly the identity that the add-on registers with. Other
// requests are left to an administrator.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := c.client.Get(ctx, req.NamespacedName, csr); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !ofAddOn(csr) || signingrequest.Decided(csr) {
		return ctrl.Result{}, nil
	}
	installation, err := c.installation(ctx, csr)
	if err != nil || installation.AddOn == nil {
		return ctrl.Result{}, err
	}
	if managedcluster.Denied(installation.Cluster) {
		c.withhold(ctx, csr, installation, fmt.Sprintf("ManagedCluster %s is denied", installation.Cluster.Name))
		return ctrl.Result{RequeueAfter: untilAccepted}, nil
	}
	if signingrequest.Outdated(csr, installation.Cluster) {
		c.withhold(ctx, csr, installation, signingrequest.OutdatedMessage(installation.Cluster))
		return ctrl.Result{}, nil
	}
	agent, err := c.Catalogue.Agent(ctx, installation.AddOn)
	if err != nil || agent == nil || agent.Options().Registration == nil {
		return ctrl.Result{}, err
	}
	installation = catalogue.Installation(agent, installation.Cluster, installation.AddOn)
	configs, err := registrations.Of(ctx, agent.Options().Registration, installation)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("find out what the add-on %s registers for on the cluster %s: %w", installation.AddOn.Name,
			installation.Cluster.Name, err)
	}
	if err := check(csr, configs, c.GRPCServer); err != nil {
		c.withhold(ctx, csr, installation, err.Error())
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, c.decide(ctx, csr, installation, agent.Options().Registration)
}

// installation returns the add-on that the request is for; its AddOn is nil if that does not exist. An add-on that is being deleted
// counts: its pre-delete hooks may need access to the hub.
func (c *Controller) installation(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) (addon.Installation, error) {
	cluster, addOn := &clusterv1.ManagedCluster{}, &addonv1beta1.ManagedClusterAddOn{}
	name := csr.Labels[fleet.LabelClusterName]
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
		return addon.Installation{}, client.IgnoreNotFound(err)
	}
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: name, Name: csr.Labels[fleet.LabelAddOnName]}, addOn); err != nil {
		return addon.Installation{}, client.IgnoreNotFound(err)
	}
	return addon.Installation{Cluster: cluster, AddOn: addOn}, nil
}

// decide consults the add-on, if that has a hook for it, and approves the request.
func (c *Controller) decide(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, installation addon.Installation,
	registration *addon.Registration) error {
	if registration.Approve != nil {
		approved, err := registration.Approve(ctx, installation, csr.DeepCopy())
		if err != nil {
			return fmt.Errorf("ask the add-on %s whether to approve CertificateSigningRequest %s: %w", installation.AddOn.Name, csr.Name, err)
		}
		if !approved {
			c.withhold(ctx, csr, installation, "the add-on does not want it")
			return nil
		}
	}
	return signingrequest.Approve(ctx, c.client, csr, c.Clock.Now(), "Auto approving addon agent certificate.")
}

// withhold leaves the request to an administrator, and records the reason in an event of the add-on.
func (c *Controller) withhold(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, installation addon.Installation,
	why string) {
	log.FromContext(ctx).Info("Certificate request of an add-on left for an administrator", "addOn",
		client.ObjectKeyFromObject(installation.AddOn), "reason", why)
	c.recorder.Eventf(installation.AddOn, csr, corev1.EventTypeWarning, fleet.EventAddOnApprovalWithheld, "Approve",
		"CertificateSigningRequest %s is not approved: %s. If it is meant to be, run: kubectl certificate approve %s", csr.Name, why, csr.Name)
}
