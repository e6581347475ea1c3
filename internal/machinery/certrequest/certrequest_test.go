package certrequest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
)

func TestParse(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "agent"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	const noRequest = "spec.request is no PEM block of type CERTIFICATE REQUEST"
	for name, test := range map[string]struct {
		request []byte
		fails   string
	}{
		"a request":          {request: encode("CERTIFICATE REQUEST", der)},
		"nothing":            {fails: noRequest},
		"no PEM":             {request: der, fails: noRequest},
		"of another type":    {request: encode("CERTIFICATE", der), fails: noRequest},
		"with other content": {request: encode("CERTIFICATE REQUEST", []byte("x")), fails: "spec.request: "},
	} {
		csr := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{Request: test.request}}
		switch parsed, err := Parse(csr); {
		case test.fails != "":
			if err == nil || !strings.HasPrefix(err.Error(), test.fails) {
				t.Errorf("%s: %v, want %s", name, err, test.fails)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case parsed.Subject.CommonName != "agent" || !key.PublicKey.Equal(parsed.PublicKey):
			t.Errorf("%s: %+v", name, parsed)
		}
	}
}

func TestIsDecided(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		conditions []certificatesv1.RequestConditionType
		want       bool
	}{
		"without conditions": {},
		"approved":           {[]certificatesv1.RequestConditionType{certificatesv1.CertificateApproved}, true},
		"denied":             {[]certificatesv1.RequestConditionType{certificatesv1.CertificateDenied}, true},
		"failed":             {[]certificatesv1.RequestConditionType{certificatesv1.CertificateFailed}, false},
		"approved, and failed": {[]certificatesv1.RequestConditionType{certificatesv1.CertificateFailed, certificatesv1.CertificateApproved},
			true},
	} {
		csr := &certificatesv1.CertificateSigningRequest{}
		for _, kind := range test.conditions {
			csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind})
		}
		if got := IsDecided(csr); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
