// Package grpcsign signs the certificates by which agents are known to the gRPC server of a hub.
package grpcsign

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

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
	// reasonNotAgent is the reason of a request that is refused.
	reasonNotAgent = "SignerValidationFailure"
)

// Options configure the controller.
type Options struct {
	// GRPC knows the requests of the server.
	GRPC signingrequest.GRPC
	// CAFile and KeyFile have what signs, in PEM. They are read for each certificate, so that a change of them counts at once.
	CAFile, KeyFile string
	// LongestValidity is how long certificates are valid at most.
	LongestValidity time.Duration
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles approved CertificateSigningRequests for the signer of the gRPC server.
type Controller struct {
	Options
	client client.Client
}

// New returns a Controller that works through the client.
func New(c client.Client, o Options) *Controller { return &Controller{Options: o, client: c} }

// Register adds the controller to the manager. It fails if there is nothing to sign with.
func Register(mgr ctrl.Manager, o Options) error {
	if _, err := readAuthority(o.CAFile, o.KeyFile); err != nil {
		return fmt.Errorf("sign certificates for the gRPC server: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("registration-csr-grpcsign").
		For(&certificatesv1.CertificateSigningRequest{}, builder.WithPredicates(predicate.NewPredicateFuncs(toBeSigned))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(New(mgr.GetClient(), o)))
}

func toBeSigned(o client.Object) bool {
	csr, ok := o.(*certificatesv1.CertificateSigningRequest)
	return ok && csr.Spec.SignerName == fleet.SignerGRPC && signingrequest.ToBeSigned(csr)
}

// Reconcile signs the request of an agent for its own identity. What else somebody has approved is refused: the server takes the names in
// these certificates for users and groups of the hub. A request may have been approved before its cluster was denied.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := c.client.Get(ctx, req.NamespacedName, csr); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !toBeSigned(csr) {
		return ctrl.Result{}, nil
	}
	name, _, requester, ok := c.GRPC.RequestedAgent(csr)
	if !ok {
		return ctrl.Result{}, c.refuse(ctx, csr, "The request is not one for the identity of the agent of the cluster in its label.")
	}
	cluster := &clusterv1.ManagedCluster{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, cluster); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if managedcluster.Denied(cluster) {
		return ctrl.Result{RequeueAfter: untilAccepted}, nil
	}
	outdated := signingrequest.OutdatedToJoin
	if fleet.IsAgentIdentity(requester) {
		outdated = signingrequest.Outdated
	}
	if outdated(csr, cluster) {
		return ctrl.Result{}, c.refuse(ctx, csr, "The request counts no more: "+signingrequest.OutdatedMessage(cluster)+".")
	}
	return ctrl.Result{}, c.sign(ctx, csr, cluster)
}

// sign starts the validity a little before now, and not before the time from which on certificates of the cluster are accepted.
func (c *Controller) sign(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, cluster *clusterv1.ManagedCluster) error {
	request, err := signingrequest.Parse(csr)
	if err != nil {
		return err
	}
	validFrom, err := fleet.CredentialsNotBefore(cluster.Annotations)
	if err != nil {
		return fmt.Errorf("ManagedCluster %s: %w", cluster.Name, err)
	}
	now := c.Clock.Now()
	notBefore := now.Add(-signingrequest.ClockSkew)
	if notBefore.Before(validFrom) {
		notBefore = validFrom
	}
	validity := c.LongestValidity
	if seconds := csr.Spec.ExpirationSeconds; seconds != nil {
		validity = min(validity, time.Duration(*seconds)*time.Second)
	}
	template := x509.Certificate{
		Subject: request.Subject, NotBefore: notBefore, NotAfter: now.Add(validity), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	authority, err := readAuthority(c.CAFile, c.KeyFile)
	if err == nil {
		csr.Status.Certificate, err = authority.Issue(template, request.PublicKey, now)
	}
	if err != nil {
		return fmt.Errorf("sign CertificateSigningRequest %s: %w", csr.Name, err)
	}
	if err := c.client.Status().Update(ctx, csr); err != nil {
		return fmt.Errorf("issue the certificate for CertificateSigningRequest %s: %w", csr.Name, err)
	}
	return nil
}

func readAuthority(certFile, keyFile string) (*signingrequest.Authority, error) {
	certificate, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	authority, err := signingrequest.NewAuthority(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	return authority, nil
}

// refuse notes why the request is not signed.
func (c *Controller) refuse(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, message string) error {
	at := metav1.NewTime(c.Clock.Now())
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: reasonNotAgent, Message: message,
		LastUpdateTime: at, LastTransitionTime: at,
	})
	if err := c.client.Status().Update(ctx, csr); err != nil {
		return fmt.Errorf("refuse CertificateSigningRequest %s: %w", csr.Name, err)
	}
	return nil
}
