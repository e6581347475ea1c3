package signingrequest

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// ClockSkew is how far the clock of a party that checks a certificate may be behind. Certificates are valid from so long before they are
// issued.
const ClockSkew = 5 * time.Minute

// Authority is a certification authority.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// NewAuthority returns the Authority with a certificate and a key, both PEM-encoded. It fails if they are unusable or do not belong
// together.
func NewAuthority(certificate, key []byte) (*Authority, error) {
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
	return &Authority{pair.Leaf, signer}, nil
}

// Issue returns a certificate, PEM-encoded, for a public key. It is as the template, with a serial number, and ends no later than that of
// the Authority does. Issue fails once that has expired.
func (a *Authority) Issue(template x509.Certificate, public crypto.PublicKey, now time.Time) ([]byte, error) {
	if !now.Before(a.certificate.NotAfter) {
		return nil, fmt.Errorf("the signing certificate of %q expired on %s: replace it", a.certificate.Subject,
			a.certificate.NotAfter.Format(time.RFC3339))
	}
	certificate, err := Sign(template, public, a.certificate, a.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}), nil
}

// Sign returns a certificate for a public key, signed with the key of an issuer. It is as the template, with a serial number, and ends no
// later than the certificate of the issuer does. Where that is nil, the key is the certificate's own.
func Sign(template x509.Certificate, public crypto.PublicKey, issuer *x509.Certificate, key crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template.SerialNumber = serial
	if issuer == nil {
		issuer = &template
	}
	if template.NotAfter.After(issuer.NotAfter) {
		template.NotAfter = issuer.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, issuer, public, key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %q: %w", template.Subject, err)
	}
	return x509.ParseCertificate(der)
}
