package signingrequest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net/url"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-06: only what requests the identity of an agent of the cluster, and for nothing else, is the request of such an agent.
func TestRequestedAgent(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const cluster = "c1"
	user := fleet.ClusterUser(cluster, "agent")
	client := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	type request = x509.CertificateRequest
	type signing = certificatesv1.CertificateSigningRequest
	for name, c := range map[string]struct {
		change func(*signing, *request)
		want   bool
	}{
		"an agent":            {func(*signing, *request) {}, true},
		"in its cluster only": {func(_ *signing, r *request) { r.Subject.Organization = []string{fleet.ClusterGroup(cluster)} }, true},
		"in no cluster":       {func(_ *signing, r *request) { r.Subject.Organization = fleet.ClusterGroups(cluster)[1:] }, false},
		"in another group": {func(_ *signing, r *request) {
			r.Subject.Organization = append(r.Subject.Organization, "system:masters")
		}, false},
		"of another cluster": {func(_ *signing, r *request) {
			r.Subject.CommonName = fleet.ClusterUser("c2", "agent")
		}, false},
		"with the UID of another user": {func(_ *signing, r *request) {
			r.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: "uid"}}
		}, false},
		"with a unit": {func(_ *signing, r *request) { r.Subject.OrganizationalUnit = []string{"unit"} }, false},
		"with a host": {func(_ *signing, r *request) { r.DNSNames = []string{"hub"} }, false},
		"with a URI":  {func(_ *signing, r *request) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "hub"}} }, false},
		"to serve": {func(csr *signing, _ *request) {
			csr.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageServerAuth}
		}, false},
		"of an add-on":  {func(csr *signing, _ *request) { csr.Labels[fleet.LabelAddOnName] = "a" }, false},
		"of no cluster": {func(csr *signing, _ *request) { csr.Labels = nil }, false},
		"to another signer": {func(csr *signing, _ *request) {
			csr.Spec.SignerName = certificatesv1.KubeletServingSignerName
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requested := &request{Subject: pkix.Name{CommonName: user, Organization: fleet.ClusterGroups(cluster)}}
			csr := &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{fleet.LabelClusterName: cluster}},
				Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: client},
			}
			c.change(csr, requested)
			encoded, err := cert.MakeCSRFromTemplate(key, requested)
			if err != nil {
				t.Fatal(err)
			}
			csr.Spec.Request = encoded
			gotCluster, gotUser, ok := RequestedAgent(csr)
			if ok != c.want || ok && (gotCluster != cluster || gotUser != user) {
				t.Errorf("%q %q %t, want %t", gotCluster, gotUser, ok, c.want)
			}
		})
	}
}
