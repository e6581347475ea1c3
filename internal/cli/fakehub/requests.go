package fakehub

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// PEMRequest is a certificate request for an identity.
func PEMRequest(t *testing.T, commonName string, organization ...string) []byte {
	t.Helper()
	return EncodeRequest(t, &x509.CertificateRequest{Subject: pkix.Name{CommonName: commonName, Organization: organization}})
}

// EncodeRequest is a certificate request with a key of its own.
func EncodeRequest(t *testing.T, request *x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := certutil.MakeCSRFromTemplate(key, request)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// JoinRequest is what an agent of a cluster makes to join with a token of the bootstrap service account.
func JoinRequest(t *testing.T, name, cluster, agent string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: certificatesv1.SchemeGroupVersion.String(), Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelClusterName: cluster}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: fleet.SignerKubeAPIServerClient,
			Username:   "system:serviceaccount:open-cluster-management:agent-registration-bootstrap",
			Groups:     []string{"system:serviceaccounts", "system:serviceaccounts:open-cluster-management"},
			Request:    PEMRequest(t, fleet.ClusterUser(cluster, agent), fleet.ClusterGroups(cluster)...),
		},
	}
}
