package addon_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/utils/ptr"

	"github.com/capstan-io/capstan/addon"
)

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newAuthority(t *testing.T, isCA bool, until time.Time) (certificate, key []byte) {
	t.Helper()
	signer := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: isCA,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func newRequest(t *testing.T) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "hello", Organization: []string{"hellos"}},
		DNSNames: []string{"hello.addon.open-cluster-management.io"},
	}, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	csr := &certificatesv1.CertificateSigningRequest{}
	csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	csr.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	return csr
}

// AF-06
func TestSignWith(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		validity  time.Duration
		requested *int32
		ca, want  time.Duration
	}{
		"as the authority says":       {time.Hour, nil, 48 * time.Hour, time.Hour},
		"a day, if nobody says":       {0, nil, 48 * time.Hour, 24 * time.Hour},
		"shorter, as asked":           {time.Hour, ptr.To[int32](600), 48 * time.Hour, 10 * time.Minute},
		"no longer, though asked":     {time.Hour, ptr.To[int32](7200), 48 * time.Hour, time.Hour},
		"not beyond the authority":    {24 * time.Hour, nil, time.Hour, time.Hour},
		"not beyond it even if asked": {24 * time.Hour, ptr.To[int32](7200), time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caCert, caKey := newAuthority(t, true, time.Now().Add(test.ca))
			sign, err := addon.SignWith(caCert, caKey, test.validity)
			if err != nil {
				t.Fatal(err)
			}
			csr := newRequest(t)
			csr.Spec.ExpirationSeconds = test.requested
			issued, err := sign(t.Context(), addon.Installation{}, csr)
			if err != nil {
				t.Fatal(err)
			}
			block, rest := pem.Decode(issued)
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil || len(rest) > 0 {
				t.Fatalf("%v, and %d bytes after it", err, len(rest))
			}
			if off := time.Until(certificate.NotAfter) - test.want; off.Abs() > time.Minute {
				t.Errorf("valid for %s, want %s", time.Until(certificate.NotAfter), test.want)
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(caCert)
			_, err = certificate.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
				DNSName: "hello.addon.open-cluster-management.io"})
			if err != nil || certificate.Subject.CommonName != "hello" || certificate.Subject.Organization[0] != "hellos" || certificate.IsCA {
				t.Errorf("%v, %+v", err, certificate)
			}
		})
	}
}

func TestSignWithBadAuthority(t *testing.T) {
	t.Parallel()
	caCert, caKey := newAuthority(t, true, time.Now().Add(time.Hour))
	leaf, leafKey := newAuthority(t, false, time.Now().Add(time.Hour))
	_, otherKey := newAuthority(t, true, time.Now().Add(time.Hour))
	for name, pair := range map[string][2][]byte{
		"no certificate": {nil, caKey}, "no key": {caCert, nil}, "key of another": {caCert, otherKey}, "not an authority": {leaf, leafKey},
	} {
		if _, err := addon.SignWith(pair[0], pair[1], 0); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	expired, expiredKey := newAuthority(t, true, time.Now().Add(-time.Minute))
	sign, err := addon.SignWith(expired, expiredKey, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sign(t.Context(), addon.Installation{}, newRequest(t)); err == nil {
		t.Error("an expired authority signs")
	}
}

// A certificate to sign others with is not issued, whoever approved it.
func TestSignWithUsages(t *testing.T) {
	t.Parallel()
	caCert, caKey := newAuthority(t, true, time.Now().Add(time.Hour))
	sign, err := addon.SignWith(caCert, caKey, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, usages := range [][]certificatesv1.KeyUsage{nil, {certificatesv1.UsageDigitalSignature},
		{certificatesv1.UsageClientAuth, certificatesv1.UsageCertSign}} {
		csr := newRequest(t)
		csr.Spec.Usages = usages
		if _, err := sign(t.Context(), addon.Installation{}, csr); err == nil {
			t.Errorf("usages %q: no error", usages)
		}
	}
}
