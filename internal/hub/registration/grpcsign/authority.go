package grpcsign

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

// clockSkew is how far the clock of a gRPC server may be behind.
const clockSkew = 5 * time.Minute

// authority is what signs.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func readAuthority(certFile, keyFile string) (*authority, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate in %s and the key in %s: %w", certFile, keyFile, err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("the certificate in %s is not one that signs others: it needs CA:TRUE in its basic constraints", certFile)
	}
	return &authority{pair.Leaf, signer}, nil
}

// sign returns a client certificate in PEM for what is requested, which is valid from notBefore to at most until.
func (a *authority) sign(request *x509.CertificateRequest, notBefore, until time.Time) ([]byte, error) {
	if until.After(a.certificate.NotAfter) {
		until = a.certificate.NotAfter
	}
	if !notBefore.Before(until) {
		return nil, fmt.Errorf("the certificate of %q that signs has expired on %s: replace it", a.certificate.Subject,
			a.certificate.NotAfter.UTC().Format(time.RFC3339))
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: request.Subject, NotBefore: notBefore, NotAfter: until, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.certificate, request.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %q: %w", request.Subject, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
