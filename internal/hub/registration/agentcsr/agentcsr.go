// Package agentcsr knows the certificate signing requests of cluster agents (RG-06).
package agentcsr

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/fleet"
)

// Requested returns the cluster and the user that the request is for; ok only if it asks for exactly the identity of an
// agent of the cluster in its label: no other group, name or usage.
func Requested(csr *certificatesv1.CertificateSigningRequest) (cluster, user string, ok bool) {
	cluster = csr.Labels[fleet.LabelClusterName]
	if cluster == "" || csr.Labels[fleet.LabelAddOnName] != "" || csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return "", "", false
	}
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return "", "", false
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || request.CheckSignature() != nil || !ofAgent(request, cluster) || !usagesOfAgent(csr.Spec.Usages) {
		return "", "", false
	}
	return cluster, request.Subject.CommonName, true
}

// Decided tells whether the request is approved or denied already.
func Decided(csr *certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied
	})
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

func ofAgent(request *x509.CertificateRequest, cluster string) bool {
	requested, _, err := fleet.ParseClusterUser(request.Subject.CommonName)
	if err != nil || requested != cluster {
		return false
	}
	if len(request.DNSNames)+len(request.EmailAddresses)+len(request.IPAddresses)+len(request.URIs) > 0 {
		return false
	}
	organizations := sets.New(request.Subject.Organization...)
	return organizations.Has(fleet.ClusterGroup(cluster)) && sets.New(fleet.ClusterGroups(cluster)...).IsSuperset(organizations)
}

func usagesOfAgent(usages []certificatesv1.KeyUsage) bool {
	allowed := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth}
	for _, u := range usages {
		if !slices.Contains(allowed, u) {
			return false
		}
	}
	return slices.Contains(usages, certificatesv1.UsageClientAuth)
}
