// Package sign has the add-ons sign the certificate requests for their own signers.
package sign

import (
	"context"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
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
	// workers is how many certificates are issued at once.
	workers = 5
	// untilAccepted is when the request of a denied cluster is reconciled again: this controller does not watch clusters.
	untilAccepted = time.Minute
)

// Options configure the controller.
type Options struct {
	// Catalogue has the add-ons whose requests the controller has signed.
	Catalogue catalogue.Catalogue
	// Requeue enqueues single add-ons again; nil enqueues none.
	Requeue *requeue.AddOns
}

// Controller reconciles approved CertificateSigningRequests of add-ons, except those for signers of Kubernetes.
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
// is enqueued again, so are its requests that are approved and have no certificate.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), mgr.GetEventRecorder("addon-csr-signing-controller"), o)
	waiting := signingrequest.OfAddOn(c.client, signingrequest.ToBeSigned) // the add-on may have had no code or signer for them before
	return ctrl.NewControllerManagedBy(mgr).Named("addon-csr-sign").
		For(&certificatesv1.CertificateSigningRequest{}, builder.WithPredicates(predicate.NewPredicateFuncs(toBeSigned))).
		Watches(&addonv1beta1.ManagedClusterAddOn{}, handler.EnqueueRequestsFromMapFunc(waiting),
			builder.WithPredicates(signingrequest.AddOnChanged())).
		WatchesRawSource(o.Requeue.Source(waiting)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// toBeSigned reports whether the request is approved, and is of an add-on and for a signer that may be the add-on's own.
func toBeSigned(o client.Object) bool {
	csr, ok := o.(*certificatesv1.CertificateSigningRequest)
	return ok && signingrequest.ToBeSigned(csr) && csr.Spec.SignerName != fleet.SignerKubeAPIServerClient &&
		csr.Labels[fleet.LabelAddOnName] != "" && csr.Labels[fleet.LabelClusterName] != ""
}

// Reconcile calls the add-on to sign the request, if it is for one of its signers. The request may have been approved before its
// cluster was denied.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := c.client.Get(ctx, req.NamespacedName, csr); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !toBeSigned(csr) {
		return ctrl.Result{}, nil
	}
	cluster, addOn := &clusterv1.ManagedCluster{}, &addonv1beta1.ManagedClusterAddOn{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: csr.Labels[fleet.LabelClusterName]}, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: cluster.Name, Name: csr.Labels[fleet.LabelAddOnName]}, addOn); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if managedcluster.Denied(cluster) {
		c.recorder.Eventf(addOn, csr, corev1.EventTypeWarning, fleet.EventAddOnNotSigned, "Sign",
			"CertificateSigningRequest %s is not signed: ManagedCluster %s is denied. When it is accepted, it is within a minute", csr.Name,
			cluster.Name)
		return ctrl.Result{RequeueAfter: untilAccepted}, nil
	}
	if signingrequest.Outdated(csr, cluster) {
		c.recorder.Eventf(addOn, csr, corev1.EventTypeWarning, fleet.EventAddOnNotSigned, "Sign",
			"CertificateSigningRequest %s is not signed: %s", csr.Name, signingrequest.OutdatedMessage(cluster))
		return ctrl.Result{}, nil
	}
	agent, err := c.Catalogue.Agent(ctx, addOn)
	if err != nil || agent == nil {
		return ctrl.Result{}, err
	}
	registration := agent.Options().Registration
	if registration == nil || registration.Sign == nil {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, c.sign(ctx, csr, catalogue.Installation(agent, cluster, addOn), registration)
}

func (c *Controller) sign(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, installation addon.Installation,
	registration *addon.Registration) error {
	what := fmt.Sprintf("CertificateSigningRequest %s of the add-on %s", csr.Name, client.ObjectKeyFromObject(installation.AddOn))
	configs, err := registrations.Of(ctx, registration, installation)
	if err != nil {
		return fmt.Errorf("find out what registers, for %s: %w", what, err)
	}
	if !slices.ContainsFunc(configs, func(config addonv1beta1.RegistrationConfig) bool {
		return registrations.Signer(&config) == csr.Spec.SignerName
	}) {
		return nil // another signer's
	}
	certificate, err := registration.Sign(ctx, installation, csr.DeepCopy())
	if err != nil {
		c.recorder.Eventf(installation.AddOn, csr, corev1.EventTypeWarning, fleet.EventAddOnNotSigned, "Sign",
			"CertificateSigningRequest %s is not signed: %v. When that is put right, it is within a minute", csr.Name, err)
		return fmt.Errorf("sign %s: %w", what, err)
	}
	if len(certificate) == 0 {
		return nil
	}
	csr.Status.Certificate = certificate
	if err := c.client.Status().Update(ctx, csr); err != nil {
		return fmt.Errorf("issue the certificate for %s: %w", what, err)
	}
	return nil
}
