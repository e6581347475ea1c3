package template

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	certutil "k8s.io/client-go/util/cert"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// authority is a CA as a Secret with the name hello-ca.
func authority(t *testing.T, namespace string, kind corev1.SecretType) *corev1.Secret {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hello-ca"},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(48 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hello-ca"}, Type: kind, Data: map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func request(t *testing.T, signer, user string, groups ...string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	encoded, err := certutil.MakeCSR(newKey(t), &pkix.Name{CommonName: user, Organization: groups}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: encoded, SignerName: signer,
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment,
			certificatesv1.UsageClientAuth},
	}}
}

// AM-35, A2: what the template declares is signed with its CA, and nothing else, whatever the status says that the agent registers with.
func TestSign(t *testing.T) {
	t.Parallel()
	const signer, user = "example.com/hello", "hello-user"
	groups := []string{"system:open-cluster-management:cluster:cluster1:addon:hello", "system:open-cluster-management:addon:hello"}
	inNamespace := strings.ReplaceAll(templateV1, "signingCA: {name: hello-ca}", "signingCA: {name: hello-ca, namespace: hello}")
	for _, test := range []struct {
		name, template, present, refused string
		request                          *certificatesv1.CertificateSigningRequest
		secret                           *corev1.Secret
	}{
		{name: "declared", request: request(t, signer, user, groups...)},
		{name: "declared, with the group of everybody", request: request(t, signer, user, append(groups, "system:authenticated")...)},
		{name: "CA elsewhere", template: inNamespace, request: request(t, signer, user, groups...),
			secret: authority(t, "hello", corev1.SecretTypeTLS)},
		{name: "before the rollout has reached the cluster", present: strings.ReplaceAll(templateV1, "agent:v1", "agent:v2"),
			request: request(t, signer, user, groups...)},
		{name: "before the rollout of another subject", present: strings.ReplaceAll(templateV1, "user: hello-user", "user: later"),
			request: request(t, signer, user, groups...), refused: "is not the one that it declares"},
		{name: "another user", request: request(t, signer, "admin", groups...), refused: `AddOnTemplate hello-v1: the subject "CN=admin,`},
		{name: "another group", request: request(t, signer, user, "system:masters"),
			refused: `is not the one that it declares for the signer "example.com/hello"`},
		{name: "one group more", request: request(t, signer, user, append(groups, "more")...), refused: "is not the one that it declares"},
		{name: "another signer", request: request(t, "example.com/other", user, groups...),
			refused: `AddOnTemplate hello-v1 does not declare the signer "example.com/other"`},
		{name: "a signer of Kubernetes", request: request(t, "kubernetes.io/kube-apiserver-client", user, groups...),
			refused: "does not declare the signer"},
		{name: "no CA", request: request(t, signer, user, groups...), secret: authority(t, "elsewhere", corev1.SecretTypeTLS),
			refused: `signer "example.com/hello": read the signingCA, Secret open-cluster-management-hub/hello-ca`},
		{name: "another secret", request: request(t, signer, user, groups...), secret: authority(t, "open-cluster-management-hub",
			corev1.SecretTypeOpaque),
			refused: `is of type "Opaque": create it with the type kubernetes.io/tls`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			desired, present, secret := templateV1, templateV1, test.secret
			if test.template != "" {
				desired, present = test.template, test.template
			}
			if test.present != "" {
				present = test.present
			}
			if secret == nil {
				secret = authority(t, "open-cluster-management-hub", corev1.SecretTypeTLS)
			}
			c := hub([]string{present}, secret)
			installation := installed(desired)
			installation.AddOn.Status.Registrations = []addonv1beta1.RegistrationConfig{{Type: addonv1beta1.CustomSigner,
				CustomSigner: &addonv1beta1.CustomSignerConfig{SignerName: signer, Subject: addonv1beta1.Subject{User: user, Groups: groups}}}}
			issued, err := (&agent{Catalogue: NewCatalogue(c, c, &events.FakeRecorder{}), name: "hello"}).sign(t.Context(), installation,
				test.request)
			if test.refused != "" {
				if err == nil || issued != nil || !strings.Contains(err.Error(), test.refused) {
					t.Errorf("issued %q, error %v, want %s", issued, err, test.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			block, _ := pem.Decode(issued)
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			if certificate.Issuer.CommonName != "hello-ca" || certificate.Subject.CommonName != user ||
				time.Until(certificate.NotAfter) > 24*time.Hour {
				t.Errorf("issued by %s for %s until %s", certificate.Issuer, certificate.Subject, certificate.NotAfter)
			}
		})
	}
}
