package admission_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net/url"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capstan-io/capstan/internal/admission"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// "approval of all client CSRs": with the token of a controller of the hub, and a user who makes the request, nobody gets a
// certificate of the cluster that the hub is in.
func TestControllersApproveOnlyAgents(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{"open-cluster-management-hub", "indigo"} {
		t.Run(namespace, func(t *testing.T) {
			t.Parallel()
			testApprovals(t, namespace)
		})
	}
}

// testApprovals tests what the controllers of a hub in a namespace approve.
func testApprovals(t *testing.T, namespace string) {
	t.Helper()
	registration := "system:serviceaccount:" + namespace + ":registration-controller-sa"
	addOns := "system:serviceaccount:" + namespace + ":addon-manager-controller-sa"
	agent := pkix.Name{CommonName: fleet.ClusterUser("c1", "agent"), Organization: append(fleet.ClusterGroups("c1"), fleet.GroupAuthenticated)}
	addOn := pkix.Name{CommonName: fleet.AddOnUser("c1", "hello", "hello-agent"), Organization: fleet.AddOnGroups("c1", "hello")}
	manager := pkix.Name{CommonName: "system:kube-controller-manager"}
	for name, test := range map[string]struct {
		sender, signer string
		subject        pkix.Name
		refused        string
	}{
		"agent of a cluster":   {registration, fleet.SignerKubeAPIServerClient, agent, ""},
		"agent of an add-on":   {addOns, fleet.SignerKubeAPIServerClient, addOn, ""},
		"of another hub":       {"system:serviceaccount:other:registration-controller-sa", fleet.SignerKubeAPIServerClient, manager, ""},
		"by a person":          {"admin", fleet.SignerKubeAPIServerClient, manager, ""},
		"signer of an add-on":  {addOns, "example.com/hello", pkix.Name{CommonName: "hello"}, ""},
		"user of Kubernetes":   {registration, fleet.SignerKubeAPIServerClient, manager, `the user "system:kube-controller-manager"`},
		"also of the add-ons'": {addOns, fleet.SignerKubeAPIServerClient, manager, `the user "system:kube-controller-manager"`},
		"nobody": {registration, fleet.SignerKubeAPIServerClient, pkix.Name{Organization: fleet.ClusterGroups("c1")},
			`the user ""`},
		"group of Kubernetes": {registration, fleet.SignerKubeAPIServerClient,
			pkix.Name{CommonName: agent.CommonName, Organization: []string{"system:nodes"}}, `the group "system:nodes"`},
		"group of people": {registration, fleet.SignerKubeAPIServerClient,
			pkix.Name{CommonName: agent.CommonName, Organization: []string{"admins"}}, `the group "admins"`},
		"UID of a user": {registration, fleet.SignerKubeAPIServerClient, pkix.Name{CommonName: agent.CommonName,
			ExtraNames: []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: "uid"}}}, "other kinds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			csr := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: test.signer,
				Request: requestFor(t, test.subject)}}
			err := admission.ValidateApproval(csr, admission.Sender{Name: test.sender}, namespace)
			if test.refused == "" && err != nil {
				t.Error(err)
			}
			if test.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.refused)) {
				t.Errorf("got %v, want 403 about %s", err, test.refused)
			}
		})
	}
	named := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: fleet.SignerKubeAPIServerClient,
		Request:    encode(t, &x509.CertificateRequest{Subject: agent, URIs: []*url.URL{{Scheme: "spiffe", Host: "hub"}}})}}
	if err := admission.ValidateApproval(named, admission.Sender{Name: registration}, namespace); !apierrors.IsForbidden(err) {
		t.Errorf("a URI: got %v, want 403", err)
	}
	unreadable := &certificatesv1.CertificateSigningRequest{
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: fleet.SignerKubeAPIServerClient, Request: []byte("nothing")}}
	if err := admission.ValidateApproval(unreadable, admission.Sender{Name: registration}, namespace); !apierrors.IsForbidden(err) {
		t.Errorf("what cannot be read: got %v, want 403", err)
	}
}

func requestFor(t *testing.T, subject pkix.Name) []byte {
	t.Helper()
	return encode(t, &x509.CertificateRequest{Subject: subject})
}

func encode(t *testing.T, request *x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, request, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
