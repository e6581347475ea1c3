package clientcert_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-06, RG-61: what is on the hub of the requests of a cluster's agent, for itself and for add-ons.
func TestRequestsHaveTheExpectedNames(t *testing.T) {
	t.Parallel()
	type request struct {
		GenerateName, Signer, User string
		Labels                     map[string]string
		Groups, Units, DNSNames    []string
		Usages                     []certificatesv1.KeyUsage
	}
	const user = "system:open-cluster-management:cluster:cluster1:addon:hello:agent:hello"
	groups := []string{"system:open-cluster-management:cluster:cluster1:addon:hello"}
	usages := []certificatesv1.KeyUsage{"digital signature", "key encipherment", "client auth"}
	ofAddOn := map[string]string{"open-cluster-management.io/cluster-name": "cluster1", "open-cluster-management.io/addon-name": "hello"}
	for name, test := range map[string]struct {
		addOn *clientcert.AddOn
		want  request
	}{
		"the agent itself": {nil, request{
			GenerateName: "cluster1-", Signer: "kubernetes.io/kube-apiserver-client", User: "system:open-cluster-management:cluster1:agent1",
			Labels: map[string]string{"open-cluster-management.io/cluster-name": "cluster1"},
			Groups: []string{"system:open-cluster-management:cluster1", "system:open-cluster-management:managed-clusters"}, Usages: usages,
		}},
		"an add-on, for the hub": {&clientcert.AddOn{Name: "hello", SignerName: fleet.SignerKubeAPIServerClient,
			Subject: pkix.Name{CommonName: user, Organization: groups}}, request{
			GenerateName: "addon-cluster1-hello-", Signer: "kubernetes.io/kube-apiserver-client", User: user, Labels: ofAddOn, Groups: groups,
			DNSNames: []string{"hello.addon.open-cluster-management.io"}, Usages: usages,
		}},
		"an add-on, with another signer": {&clientcert.AddOn{Name: "hello", SignerName: "example.com/a",
			Subject: pkix.Name{CommonName: "u", Organization: []string{"g"}, OrganizationalUnit: []string{"o"}}}, request{
			GenerateName: "addon-cluster1-hello-", Signer: "example.com/a", User: "u", Labels: ofAddOn, Groups: []string{"g"}, Units: []string{"o"},
			DNSNames: []string{"hello.addon.open-cluster-management.io"}, Usages: usages,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := newHub()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			requester := &clientcert.Requester{Hub: hub, Identity: self, AddOn: test.addOn, Record: func(_, reason, _, _ string, _ ...any) {
				if reason == fleet.EventCSRCreated {
					stop()
				}
			}}
			if _, _, err := requester.Request(ctx); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			list := &certificatesv1.CertificateSigningRequestList{}
			if err := hub.List(t.Context(), list); err != nil || len(list.Items) != 1 {
				t.Fatalf("requests %v, error %v", list.Items, err)
			}
			csr := list.Items[0]
			block, _ := pem.Decode(csr.Spec.Request)
			parsed, err := x509.ParseCertificateRequest(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			got := request{
				GenerateName: csr.GenerateName, Signer: csr.Spec.SignerName, User: parsed.Subject.CommonName, Labels: csr.Labels,
				Groups: parsed.Subject.Organization, Units: parsed.Subject.OrganizationalUnit, DNSNames: parsed.DNSNames, Usages: csr.Spec.Usages,
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
