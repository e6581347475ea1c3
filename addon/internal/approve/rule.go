package approve

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/capstan-io/capstan/addon/internal/registrations"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// check returns nil if the request comes from the agent of its cluster and requests exactly the identity that the add-on registers
// with. The error says what is wrong.
func check(csr *certificatesv1.CertificateSigningRequest, configs []addonv1beta1.RegistrationConfig, grpcServer string) error {
	cluster, addOn := csr.Labels[fleet.LabelClusterName], csr.Labels[fleet.LabelAddOnName]
	if err := checkRequester(csr, cluster, grpcServer); err != nil {
		return err
	}
	at := slices.IndexFunc(configs, func(c addonv1beta1.RegistrationConfig) bool { return registrations.Signer(&c) == csr.Spec.SignerName })
	if at < 0 {
		return fmt.Errorf("its signer is %q, with which the add-on does not register", csr.Spec.SignerName)
	}
	if err := checkUsages(csr); err != nil {
		return err
	}
	request, err := signingrequest.Parse(csr)
	if err != nil {
		return err
	}
	if err := checkSubject(request, registrations.Subject(&configs[at])); err != nil {
		return err
	}
	return checkNames(request, addOn)
}

// checkRequester requires that the request comes from the agent of the cluster; the label alone proves nothing, because any requester
// can set it. The gRPC server makes requests on behalf of the user in an annotation. An agent that joined by AWS IAM has another user.
func checkRequester(csr *certificatesv1.CertificateSigningRequest, cluster, grpcServer string) error {
	user, groups := csr.Spec.Username, csr.Spec.Groups
	if user == grpcServer {
		user, groups = csr.Annotations[fleet.AnnotationCSRUser], []string{fleet.ClusterGroup(cluster)}
	}
	of := cluster
	if user != fleet.AWSClusterUser(cluster) || !slices.Contains(groups, fleet.AWSClusterGroup(cluster)) {
		var err error
		if of, _, err = fleet.ParseClusterUser(user); err != nil {
			return fmt.Errorf("its requester is not the agent of the cluster %s: %w", cluster, err)
		}
	}
	if of != cluster || !slices.Equal(fleet.AgentClusters(groups), []string{cluster}) {
		return fmt.Errorf("its requester %q, in the groups %q, is not the agent of the cluster %s, which its label names", user, groups, cluster)
	}
	return nil
}

// checkUsages requires the usages of a client certificate. With a signer of the add-on's own, server auth may replace client auth.
func checkUsages(csr *certificatesv1.CertificateSigningRequest) error {
	usages := csr.Spec.Usages
	if csr.Spec.SignerName != fleet.SignerKubeAPIServerClient {
		usages = slices.Clone(usages)
		for i := range usages {
			if usages[i] == certificatesv1.UsageServerAuth {
				usages[i] = certificatesv1.UsageClientAuth
			}
		}
	}
	if !signingrequest.OfClient(usages) {
		return fmt.Errorf("its usages are %q, not those of a client certificate: digital signature, key encipherment, client auth",
			csr.Spec.Usages)
	}
	return nil
}

// checkSubject requires exactly the desired subject.
func checkSubject(request *x509.CertificateRequest, want addonv1beta1.Subject) error {
	if !signingrequest.IsFor(request, want) {
		expected := pkix.Name{CommonName: want.User, Organization: want.Groups, OrganizationalUnit: want.OrganizationUnits}
		return fmt.Errorf("its subject is %q; the add-on registers as %q", request.Subject, expected)
	}
	return nil
}

// checkNames allows the DNS name of the add-on, and no other subject alternative name.
func checkNames(request *x509.CertificateRequest, addOn string) error {
	for _, name := range request.DNSNames {
		if !strings.EqualFold(name, fleet.AddOnDNSName(addOn)) {
			return fmt.Errorf("it asks for the DNS name %q; the add-on may have %q", name, fleet.AddOnDNSName(addOn))
		}
	}
	if n := len(request.EmailAddresses) + len(request.IPAddresses) + len(request.URIs); n > 0 {
		return fmt.Errorf("it asks for %d e-mail addresses, IP addresses and URIs; the add-on may have none", n)
	}
	return nil
}
