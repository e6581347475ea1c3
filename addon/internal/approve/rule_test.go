package approve

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/url"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

const kubeSigner, ownSigner = "kubernetes.io/kube-apiserver-client", "example.com/hello"

var (
	agentUser   = "system:open-cluster-management:c1:agent1"
	agentGroups = []string{"system:open-cluster-management:c1", "system:open-cluster-management:managed-clusters", "system:authenticated"}
	subject     = pkix.Name{
		CommonName:   "system:open-cluster-management:cluster:c1:addon:hello:agent:hello",
		Organization: []string{"system:open-cluster-management:cluster:c1:addon:hello", "system:open-cluster-management:addon:hello"},
	}
	configs = []addonv1beta1.RegistrationConfig{
		{Type: addonv1beta1.KubeClient, KubeClient: &addonv1beta1.KubeClientConfig{
			Subject: addonv1beta1.KubeClientSubject{User: subject.CommonName, Groups: subject.Organization}}},
		{Type: addonv1beta1.CustomSigner, CustomSigner: &addonv1beta1.CustomSignerConfig{
			SignerName: ownSigner, Subject: addonv1beta1.Subject{User: "hello", Groups: []string{"hellos"}, OrganizationUnits: []string{"unit"}}}},
	}
)

// input is a request, as its parts may be changed.
type input struct {
	csr      *certificatesv1.CertificateSigningRequest
	template *x509.CertificateRequest
	// grpcServer is the user of the gRPC server of the hub, if that is not the usual one.
	grpcServer string
}

func good() *input {
	return &input{
		csr: &certificatesv1.CertificateSigningRequest{
			Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: kubeSigner, Username: agentUser, Groups: agentGroups,
				Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment,
					certificatesv1.UsageClientAuth},
			},
		},
		template: &x509.CertificateRequest{Subject: subject, DNSNames: []string{"hello.addon.open-cluster-management.io"}},
	}
}

func (a *input) check(t *testing.T) error {
	t.Helper()
	if a.csr.Labels == nil {
		a.csr.Labels = map[string]string{"open-cluster-management.io/cluster-name": "c1", "open-cluster-management.io/addon-name": "hello"}
	}
	if a.csr.Spec.Request == nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, a.template, key)
		if err != nil {
			t.Fatal(err)
		}
		a.csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	return check(a.csr, configs, cmp.Or(a.grpcServer, "system:serviceaccount:open-cluster-management-hub:grpc-server-sa"))
}

// own makes it a request to the add-on's own signer.
func (a *input) own() {
	a.csr.Spec.SignerName = ownSigner
	a.template.Subject = pkix.Name{CommonName: "hello", Organization: []string{"hellos"}, OrganizationalUnit: []string{"unit"}}
}

// AF-05
func TestApproved(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*input){
		"as the agent asks":  func(*input) {},
		"without a DNS name": func(a *input) { a.template.DNSNames = nil },
		"with the group of everyone": func(a *input) {
			a.template.Subject.Organization = append([]string{"system:authenticated"}, subject.Organization...)
		},
		"groups in another order": func(a *input) {
			a.template.Subject.Organization = []string{subject.Organization[1], subject.Organization[0]}
		},
		"own signer": (*input).own,
		"own signer, to serve": func(a *input) {
			a.own()
			a.csr.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth}
		},
		"cluster that joined by AWS IAM": func(a *input) {
			a.csr.Spec.Username, a.csr.Spec.Groups = "open-cluster-management:c1", []string{"open-cluster-management:c1", "system:authenticated"}
		},
		"through the gRPC server": func(a *input) {
			a.csr.Spec.Username, a.csr.Spec.Groups = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa",
				[]string{"system:serviceaccounts"}
			a.csr.Annotations = map[string]string{"open-cluster-management.io/csr-user": agentUser}
		},
		"through the gRPC server of a hosted hub": func(a *input) {
			a.grpcServer = "system:serviceaccount:indigo:grpc-server-sa"
			a.csr.Spec.Username, a.csr.Spec.Groups = a.grpcServer, []string{"system:serviceaccounts"}
			a.csr.Annotations = map[string]string{"open-cluster-management.io/csr-user": agentUser}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := good()
			change(a)
			if err := a.check(t); err != nil {
				t.Error(err)
			}
		})
	}
}

// A2: whoever wants more than the add-on registers for, or is not the agent of the cluster, gets nothing. Each is wrong in one
// thing, which the error names.
func TestForged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*input)
		says   string
	}{
		"agent of another cluster": {func(a *input) {
			a.csr.Spec.Username, a.csr.Spec.Groups = "system:open-cluster-management:c2:agent1", []string{"system:open-cluster-management:c2"}
		}, "requester"},
		"user of one cluster, groups of another": {func(a *input) { a.csr.Spec.Groups = []string{"system:open-cluster-management:c2"} },
			"requester"},
		"agent of two clusters": {func(a *input) {
			a.csr.Spec.Groups = append([]string{"system:open-cluster-management:c2"}, agentGroups...)
		}, "requester"},
		"user without groups": {func(a *input) { a.csr.Spec.Groups = []string{"system:authenticated"} }, "requester"},
		"whoever joins": {func(a *input) {
			a.csr.Spec.Username, a.csr.Spec.Groups = "system:serviceaccount:open-cluster-management:agent-registration-bootstrap",
				[]string{"system:bootstrappers:managedcluster"}
		}, "requester"},
		"another add-on of the cluster": {func(a *input) {
			a.csr.Spec.Username = "system:open-cluster-management:cluster:c1:addon:other:agent:other"
		}, "requester"},
		"cluster whose name begins alike": {func(a *input) { a.csr.Spec.Username = "system:open-cluster-management:c10:agent1" }, "requester"},
		"annotation without the gRPC server": {func(a *input) {
			a.csr.Spec.Username = "system:open-cluster-management:c2:agent1"
			a.csr.Annotations = map[string]string{"open-cluster-management.io/csr-user": agentUser}
		}, "requester"},
		"gRPC server of another hub": {func(a *input) {
			a.csr.Spec.Username = "system:serviceaccount:indigo:grpc-server-sa"
			a.csr.Annotations = map[string]string{"open-cluster-management.io/csr-user": agentUser}
		}, "requester"},
		"gRPC server for another cluster": {func(a *input) {
			a.csr.Spec.Username = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa"
			a.csr.Annotations = map[string]string{"open-cluster-management.io/csr-user": "system:open-cluster-management:c2:agent1"}
		}, "requester"},
		"another cluster that joined by AWS IAM": {func(a *input) {
			a.csr.Spec.Username, a.csr.Spec.Groups = "open-cluster-management:c2", []string{"open-cluster-management:c2"}
		}, "requester"},
		"user of AWS IAM, groups of another": {func(a *input) {
			a.csr.Spec.Username, a.csr.Spec.Groups = "open-cluster-management:c1", []string{"open-cluster-management:c2"}
		}, "requester"},
		"user of AWS IAM, groups of two": {func(a *input) {
			a.csr.Spec.Username = "open-cluster-management:c1"
			a.csr.Spec.Groups = []string{"open-cluster-management:c1", "open-cluster-management:c2"}
		}, "requester"},
		"user of AWS IAM, without its group": {func(a *input) { a.csr.Spec.Username = "open-cluster-management:c1" }, "requester"},
		"user of AWS IAM, without groups": {func(a *input) {
			a.csr.Spec.Username, a.csr.Spec.Groups = "open-cluster-management:c1", []string{"system:authenticated"}
		}, "requester"},
		"group of AWS IAM, another user": {func(a *input) {
			a.csr.Spec.Username, a.csr.Spec.Groups = "ann", []string{"open-cluster-management:c1"}
		}, "requester"},
		"gRPC server for a user of AWS IAM": {func(a *input) {
			a.csr.Spec.Username = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa"
			a.csr.Annotations = map[string]string{"open-cluster-management.io/csr-user": "open-cluster-management:c1"}
		}, "requester"},
		"signer it does not register with": {func(a *input) { a.csr.Spec.SignerName = "example.com/other" }, "signer"},
		"kubelets' signer":                 {func(a *input) { a.csr.Spec.SignerName = "kubernetes.io/kube-apiserver-client-kubelet" }, "signer"},
		"own subject, hub's signer":        {func(a *input) { a.own(); a.csr.Spec.SignerName = kubeSigner }, "subject"},
		"hub's subject, own signer":        {func(a *input) { a.csr.Spec.SignerName = ownSigner }, "subject"},
		"administrators, too": {func(a *input) {
			a.template.Subject.Organization = append([]string{"system:masters"}, subject.Organization...)
		}, "subject"},
		"administrators instead": {func(a *input) { a.template.Subject.Organization = []string{"system:masters"} }, "subject"},
		"one group less":         {func(a *input) { a.template.Subject.Organization = subject.Organization[:1] }, "subject"},
		"no groups":              {func(a *input) { a.template.Subject.Organization = nil }, "subject"},
		"another cluster's add-on": {func(a *input) {
			a.template.Subject.CommonName = strings.ReplaceAll(subject.CommonName, "c1", "c2")
		}, "subject"},
		"another agent's name": {func(a *input) {
			a.template.Subject.CommonName = strings.ReplaceAll(subject.CommonName, "agent:hello", "agent:other")
		}, "subject"},
		"the cluster's agent": {func(a *input) { a.template.Subject = pkix.Name{CommonName: agentUser, Organization: agentGroups} },
			"subject"},
		"a unit":                 {func(a *input) { a.template.Subject.OrganizationalUnit = []string{"unit"} }, "subject"},
		"own signer, no unit":    {func(a *input) { a.own(); a.template.Subject.OrganizationalUnit = nil }, "subject"},
		"a country":              {func(a *input) { a.template.Subject.Country = []string{"XX"} }, "subject"},
		"a serial number":        {func(a *input) { a.template.Subject.SerialNumber = "1" }, "subject"},
		"another DNS name":       {func(a *input) { a.template.DNSNames = append(a.template.DNSNames, "kubernetes.default.svc") }, "DNS name"},
		"another add-on's name":  {func(a *input) { a.template.DNSNames = []string{"other.addon.open-cluster-management.io"} }, "DNS name"},
		"an IP address":          {func(a *input) { a.template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} }, "IP addresses"},
		"an e-mail address":      {func(a *input) { a.template.EmailAddresses = []string{"a@example.com"} }, "IP addresses"},
		"a URI":                  {func(a *input) { a.template.URIs = []*url.URL{{Scheme: "spiffe", Host: "hub"}} }, "IP addresses"},
		"to sign others":         {func(a *input) { a.csr.Spec.Usages = append(a.csr.Spec.Usages, certificatesv1.UsageCertSign) }, "usages"},
		"to serve, hub's signer": {func(a *input) { a.csr.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth} }, "usages"},
		"no usages":              {func(a *input) { a.csr.Spec.Usages = nil }, "usages"},
		"no request":             {func(a *input) { a.csr.Spec.Request = []byte("nothing") }, "PEM"},
		"not its own key": {func(a *input) {
			other := good()
			if err := other.check(&testing.T{}); err != nil {
				panic(err)
			}
			block, _ := pem.Decode(other.csr.Spec.Request)
			block.Bytes[len(block.Bytes)-1] ^= 1
			a.csr.Spec.Request = pem.EncodeToMemory(block)
		}, "spec.request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := good()
			test.change(a)
			if err := a.check(t); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want an error about %q", err, test.says)
			}
		})
	}
}
