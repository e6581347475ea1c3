// Package certrequest reads CertificateSigningRequests: what is requested, and what is decided. Programs without controllers use it, too.
package certrequest

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// Parse returns what is requested. It does not check that the requester has the key.
func Parse(csr *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("spec.request is no PEM block of type CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("spec.request: %w", err)
	}
	return request, nil
}

// Is reports whether the request has a condition of one of the types.
func Is(csr *certificatesv1.CertificateSigningRequest, types ...certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return slices.Contains(types, c.Type)
	})
}

// IsDecided reports whether the request is approved or denied already.
func IsDecided(csr *certificatesv1.CertificateSigningRequest) bool {
	return Is(csr, certificatesv1.CertificateApproved, certificatesv1.CertificateDenied)
}
