package servingcerts

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// pair is a certificate with its key.
type pair struct {
	certificate   *x509.Certificate
	key           crypto.Signer
	chain, keyPEM []byte
}

func parsePair(chain, key []byte) (pair, error) {
	both, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return pair{}, err
	}
	signer, ok := both.PrivateKey.(crypto.Signer)
	if !ok {
		return pair{}, errors.New("its key cannot sign")
	}
	return pair{both.Leaf, signer, chain, key}, nil
}

func newAuthority(now time.Time, name string) (pair, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityValidity),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	return sign(template, nil)
}

func newServing(now time.Time, hosts []string, authority pair) (pair, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: hosts[0]}, NotBefore: now.Add(-backdate), NotAfter: now.Add(servingValidity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if len(template.Subject.CommonName) > 64 { // the most that X.509 allows; clients read the names below
		template.Subject.CommonName = ""
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return sign(template, &authority)
}

// sign makes a certificate with a new key. Without an authority it signs itself.
func sign(template *x509.Certificate, authority *pair) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	if authority == nil {
		authority = &pair{key: key}
	}
	certificate, err := signingrequest.Sign(*template, key.Public(), authority.certificate, authority.key)
	if err != nil {
		return pair{}, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	return pair{certificate, key, encode(certificate), keyPEM}, err
}

// signedBy is the certificate of an authority by another one, in PEM. It ends no later than that.
func (p pair) signedBy(authority pair) ([]byte, error) {
	template := x509.Certificate{
		Subject: p.certificate.Subject, NotBefore: p.certificate.NotBefore, NotAfter: p.certificate.NotAfter, KeyUsage: p.certificate.KeyUsage,
		IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := signingrequest.Sign(template, p.key.Public(), authority.certificate, authority.key)
	if err != nil {
		return nil, err
	}
	return encode(certificate), nil
}

func encode(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

// normal is an IP address in its shortest form, and a name as it is.
func normal(host string) string {
	if ip := net.ParseIP(host); ip != nil {
		return ip.String()
	}
	return host
}
