// Package certrequest has what everybody does who decides on certificate signing requests.
package certrequest

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/fleet"
)

// Parse returns what is requested. It fails if that was not signed with the key that it is for.
func Parse(csr *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("spec.request is no PEM block of type CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("spec.request: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("spec.request: %w", err)
	}
	return request, nil
}

// IsFor tells whether a certificate for the subject is requested: for all of it and nothing else, but the group that everybody
// is in.
func IsFor(request *x509.CertificateRequest, subject addonv1beta1.Subject) bool {
	asked := request.Subject
	return asked.CommonName == subject.User &&
		sets.New(asked.Organization...).Delete(fleet.GroupAuthenticated).Equal(sets.New(subject.Groups...).Delete(fleet.GroupAuthenticated)) &&
		sets.New(asked.OrganizationalUnit...).Equal(sets.New(subject.OrganizationUnits...)) &&
		len(asked.Names) == 1+len(asked.Organization)+len(asked.OrganizationalUnit) // attributes of no other kind
}

// OfClient tells whether the usages are those of a client certificate and no others.
func OfClient(usages []certificatesv1.KeyUsage) bool {
	allowed := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth}
	for _, u := range usages {
		if !slices.Contains(allowed, u) {
			return false
		}
	}
	return slices.Contains(usages, certificatesv1.UsageClientAuth)
}

// Decided tells whether the request is approved or denied already.
func Decided(csr *certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied
	})
}

// Undecided are the requests with the labels that are neither approved nor denied.
func Undecided(ctx context.Context, c client.Reader, with client.MatchingLabels) ([]reconcile.Request, error) {
	return list(ctx, c, with, func(csr *certificatesv1.CertificateSigningRequest) bool { return !Decided(csr) })
}

// Unsigned are the requests with the labels that are approved and have no certificate yet.
func Unsigned(ctx context.Context, c client.Reader, with client.MatchingLabels) ([]reconcile.Request, error) {
	return list(ctx, c, with, ToBeSigned)
}

func list(
	ctx context.Context, c client.Reader, with client.MatchingLabels, which func(*certificatesv1.CertificateSigningRequest) bool,
) (found []reconcile.Request, err error) {
	csrs := &certificatesv1.CertificateSigningRequestList{}
	if err := c.List(ctx, csrs, with, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list CertificateSigningRequests: %w", err)
	}
	for i := range csrs.Items {
		if which(&csrs.Items[i]) {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&csrs.Items[i])})
		}
	}
	return found, nil
}

// OfAddOn are the labels of the requests of a ManagedClusterAddOn.
func OfAddOn(addOn client.Object) client.MatchingLabels {
	return client.MatchingLabels{fleet.LabelClusterName: addOn.GetNamespace(), fleet.LabelAddOnName: addOn.GetName()}
}

// AddOnChanged matches ManagedClusterAddOns whose requests may be decided otherwise now: others register, or by other configurations.
func AddOnChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*addonv1beta1.ManagedClusterAddOn)
		after, too := e.ObjectNew.(*addonv1beta1.ManagedClusterAddOn)
		return !ok || !too || !equality.Semantic.DeepEqual(before.Status.Registrations, after.Status.Registrations) ||
			!equality.Semantic.DeepEqual(before.Status.ConfigReferences, after.Status.ConfigReferences)
	}}
}

// ToBeSigned tells whether the request is approved and has no certificate yet.
func ToBeSigned(csr *certificatesv1.CertificateSigningRequest) bool {
	approved := false
	for _, c := range csr.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateApproved:
			approved = true
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return false
		}
	}
	return approved && len(csr.Status.Certificate) == 0
}

// ApprovedByHub tells whether the hub approved the request by itself.
func ApprovedByHub(csr *certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved && c.Reason == fleet.CSRApprovalReason
	})
}

// Approve approves the request in the name of the hub; the message says why.
func Approve(ctx context.Context, c client.Client, csr *certificatesv1.CertificateSigningRequest, now time.Time, message string) error {
	at := metav1.NewTime(now)
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: fleet.CSRApprovalReason,
		Message: message, LastUpdateTime: at, LastTransitionTime: at,
	})
	if err := c.SubResource("approval").Update(ctx, csr); err != nil {
		return fmt.Errorf("approve CertificateSigningRequest %s: %w", csr.Name, err)
	}
	return nil
}
