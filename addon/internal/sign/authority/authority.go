// Package authority issues certificates for the agents of add-ons with the certificate and the key of a certification authority.
package authority

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// defaultValidity is how long certificates are valid if the caller sets no bound.
const defaultValidity = 24 * time.Hour

// Authority is a certification authority for agents.
type Authority struct {
	issuer   *signingrequest.Authority
	validity time.Duration
}

// New returns the Authority with a certificate and a key, both PEM-encoded. The certificates that it issues are valid for at most validity;
// 0 means 24 hours. It fails if certificate and key are unusable or do not belong together.
func New(certificate, key []byte, validity time.Duration) (*Authority, error) {
	issuer, err := signingrequest.NewAuthority(certificate, key)
	if err != nil {
		return nil, err
	}
	if validity <= 0 {
		validity = defaultValidity
	}
	return &Authority{issuer, validity}, nil
}

// Sign issues the certificate, PEM-encoded, that a request is for. It is valid from a few minutes before now, as long as the request
// specifies, but no longer than the Authority allows or is valid itself.
func (a *Authority) Sign(csr *certificatesv1.CertificateSigningRequest, now time.Time) ([]byte, error) {
	request, err := signingrequest.Parse(csr)
	if err != nil {
		return nil, err
	}
	validity := a.validity
	if seconds := csr.Spec.ExpirationSeconds; seconds != nil {
		validity = min(validity, time.Duration(*seconds)*time.Second)
	}
	template := x509.Certificate{
		Subject: request.Subject, DNSNames: request.DNSNames,
		EmailAddresses: request.EmailAddresses, IPAddresses: request.IPAddresses, URIs: request.URIs,
		NotBefore: now.Add(-signingrequest.ClockSkew), NotAfter: now.Add(validity), BasicConstraintsValid: true,
	}
	if template.KeyUsage, template.ExtKeyUsage, err = usages(csr.Spec.Usages); err != nil {
		return nil, err
	}
	return a.issuer.Issue(template, request.PublicKey, now)
}

func usages(requested []certificatesv1.KeyUsage) (usage x509.KeyUsage, extended []x509.ExtKeyUsage, err error) {
	for _, u := range requested {
		switch u {
		case certificatesv1.UsageDigitalSignature:
			usage |= x509.KeyUsageDigitalSignature
		case certificatesv1.UsageKeyEncipherment:
			usage |= x509.KeyUsageKeyEncipherment
		case certificatesv1.UsageClientAuth:
			extended = append(extended, x509.ExtKeyUsageClientAuth)
		case certificatesv1.UsageServerAuth:
			extended = append(extended, x509.ExtKeyUsageServerAuth)
		default:
			return 0, nil, fmt.Errorf("usage %q is not signed for agents: only digital signature, key encipherment, client auth and server auth are",
				u)
		}
	}
	if len(extended) == 0 {
		return 0, nil, errors.New("spec.usages has neither client auth nor server auth")
	}
	return usage, extended, nil
}
