package signingrequest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-51 GR-08: the annotation with the user counts in requests of the gRPC server alone, and its signer only where there is one.
func TestGRPC(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	agent := fleet.ClusterUser("c1", "agent")
	request, err := cert.MakeCSR(key, &pkix.Name{CommonName: agent, Organization: fleet.ClusterGroups("c1")}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	const server = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa"
	with := GRPC{Server: server, Users: []string{"trusted"}}
	for name, test := range map[string]struct {
		grpc      GRPC
		signer    string
		user      string
		says      string
		requester string
		ok        bool
		trusted   bool
	}{
		"by the server":                    {with, fleet.SignerGRPC, server, "trusted", "trusted", true, true},
		"by the server, of others":         {with, fleet.SignerGRPC, server, agent, agent, true, false},
		"by the server, of nobody":         {with, fleet.SignerGRPC, server, "", "", true, false},
		"by an imposter":                   {with, fleet.SignerGRPC, "imposter", "trusted", "imposter", true, false},
		"by the API":                       {with, fleet.SignerGRPC, "trusted", "", "trusted", true, true},
		"without a server":                 {GRPC{}, fleet.SignerGRPC, server, "trusted", "", false, false},
		"for the API":                      {with, fleet.SignerKubeAPIServerClient, "user", "", "user", true, true},
		"for the API, of a user of gRPC":   {with, fleet.SignerKubeAPIServerClient, "trusted", "", "trusted", true, false},
		"for the API, by an imposter":      {with, fleet.SignerKubeAPIServerClient, "imposter", "user", "imposter", true, false},
		"for the API, without a server":    {GRPC{}, fleet.SignerKubeAPIServerClient, server, "user", server, true, false},
		"for another signer by the server": {with, "example.com/x", server, agent, "", false, false},
	} {
		csr := &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{fleet.LabelClusterName: "c1"},
				Annotations: map[string]string{fleet.AnnotationCSRUser: test.says}},
			Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: test.signer, Username: test.user,
				Usages:  []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
				Request: request},
		}
		_, user, requester, ok := test.grpc.RequestedAgent(csr)
		if ok != test.ok || requester != test.requester || ok && user != agent {
			t.Errorf("%s: %q asks for %q, %t; want %q, %t", name, requester, user, ok, test.requester, test.ok)
		}
		if trusted := ok && test.grpc.FromTrusted(csr, []string{"user"}); trusted != test.trusted {
			t.Errorf("%s: trusted is %t", name, trusted)
		}
	}
}
