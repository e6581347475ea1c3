// Package authority issues certificates for the agents of add-ons with the certificate and the key of a certification authority.
package authority

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// defaultValidity is how long certificates are valid if the caller sets no bound.
const defaultValidity = 24 * time.Hour

// clockSkew is how far the clock of a party that checks a certificate may be behind.
const clockSkew = 5 * time.Minute

// Authority is a certification authority.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	validity    time.Duration
}

// New returns the Authority with a certificate and a key, both PEM-encoded. The certificates that it issues are valid for at most validity;
// 0 means 24 hours. It fails if certificate and key are unusable or do not belong together.
func New(certificate, key []byte, validity time.Duration) (*Authority, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("read the signing certificate and its key: %w", err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("the key of the signing certificate is a %T, which cannot sign", pair.PrivateKey)
	}
	if !pair.Leaf.IsCA {
		return nil, fmt.Errorf("the certificate of %q is not that of a certification authority: it needs CA:TRUE in its basic constraints",
			pair.Leaf.Subject)
	}
	if validity <= 0 {
		validity = defaultValidity
	}
	return &Authority{certificate: pair.Leaf, key: signer, validity: validity}, nil
}

// Sign issues the certificate, PEM-encoded, that a request asks for. It is valid from a few minutes before now, as long as the request asks
// for, but no longer than the Authority allows or is valid itself.
func (a *Authority) Sign(csr *certificatesv1.CertificateSigningRequest, now time.Time) ([]byte, error) {
	request, err := signingrequest.Parse(csr)
	if err != nil {
		return nil, err
	}
	if !now.Before(a.certificate.NotAfter) {
		return nil, fmt.Errorf("the signing certificate of %q expired on %s: replace it", a.certificate.Subject,
			a.certificate.NotAfter.Format(time.RFC3339))
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: request.Subject, DNSNames: request.DNSNames,
		EmailAddresses: request.EmailAddresses, IPAddresses: request.IPAddresses, URIs: request.URIs,
		NotBefore: now.Add(-clockSkew), NotAfter: a.until(csr, now), BasicConstraintsValid: true,
	}
	if template.KeyUsage, template.ExtKeyUsage, err = usages(csr.Spec.Usages); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, request.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %q: %w", request.Subject, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// until is the end of the certificate's validity.
func (a *Authority) until(csr *certificatesv1.CertificateSigningRequest, now time.Time) time.Time {
	validity := a.validity
	if seconds := csr.Spec.ExpirationSeconds; seconds != nil {
		validity = min(validity, time.Duration(*seconds)*time.Second)
	}
	if until := now.Add(validity); until.Before(a.certificate.NotAfter) {
		return until
	}
	return a.certificate.NotAfter
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
