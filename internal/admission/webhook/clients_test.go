package webhook_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/capstan-io/capstan/internal/admission/webhook"
)

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	signed := (&authority{}).sign(t, template)
	certificate, err := x509.ParseCertificate(signed.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate, signed.PrivateKey.(crypto.Signer)}
}

// sign makes a certificate; an authority without one makes it vouch for itself.
func (a *authority) sign(t *testing.T, template *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotAfter = big.NewInt(1), time.Now().Add(time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// What a webhook of admission answers shows what a user may do: only the API server is to get it.
func TestOfClients(t *testing.T) {
	t.Parallel()
	ours, others := newAuthority(t), newAuthority(t)
	roots := x509.NewCertPool()
	roots.AddCert(ours.certificate)
	verify := func() (x509.VerifyOptions, bool) {
		return x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
	}
	server := httptest.NewUnstartedServer(webhook.OfClients(verify, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)

	certificate := func(by *authority, usage x509.ExtKeyUsage) []tls.Certificate {
		return []tls.Certificate{by.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "apiserver"},
			ExtKeyUsage: []x509.ExtKeyUsage{usage}})}
	}
	for name, test := range map[string]struct {
		shown []tls.Certificate
		want  int
	}{
		"the API server":                   {certificate(ours, x509.ExtKeyUsageClientAuth), http.StatusOK},
		"nobody":                           {nil, http.StatusUnauthorized},
		"a client of another authority":    {certificate(others, x509.ExtKeyUsageClientAuth), http.StatusUnauthorized},
		"a server":                         {certificate(ours, x509.ExtKeyUsageServerAuth), http.StatusUnauthorized},
		"a client that vouches for itself": {certificate(&authority{}, x509.ExtKeyUsageClientAuth), http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transport := server.Client().Transport.(*http.Transport).Clone()
			// Any is shown, also of an authority that the server does not request.
			transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(test.shown) == 0 {
					return &tls.Certificate{}, nil
				}
				return &test.shown[0], nil
			}
			t.Cleanup(transport.CloseIdleConnections)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := transport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			if err := response.Body.Close(); err != nil || response.StatusCode != test.want {
				t.Errorf("%v, %s, want %d", err, response.Status, test.want)
			}
		})
	}
}
