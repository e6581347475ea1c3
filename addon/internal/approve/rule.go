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

// check returns nil if the request is one of the agent of its cluster, for exactly the identity that the add-on
// registers with the signer. The error says what is wrong.
func check(csr *certificatesv1.CertificateSigningRequest, configs []addonv1beta1.RegistrationConfig) error {
	cluster, addOn := csr.Labels[fleet.LabelClusterName], csr.Labels[fleet.LabelAddOnName]
	if err := checkRequester(csr, cluster); err != nil {
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

// checkRequester wants the agent of the cluster, whatever the label says that anybody can set. What the gRPC server asks for is
// asked for by the user that it names.
func checkRequester(csr *certificatesv1.CertificateSigningRequest, cluster string) error {
	user, groups := csr.Spec.Username, csr.Spec.Groups
	if user == fleet.ServiceAccountUser(fleet.NamespaceHub, fleet.ServiceAccountGRPCServer) {
		user, groups = csr.Annotations[fleet.AnnotationCSRUser], []string{fleet.ClusterGroup(cluster)}
	}
	of, _, err := fleet.ParseClusterUser(user)
	if err != nil {
		return fmt.Errorf("its requester is not the agent of the cluster %s: %w", cluster, err)
	}
	if of != cluster || !slices.Equal(fleet.AgentClusters(groups), []string{cluster}) {
		return fmt.Errorf("its requester %q, in the groups %q, is not the agent of the cluster %s, which its label names", user, groups, cluster)
	}
	return nil
}

// checkUsages wants those of a client; of a signer of the add-on's own, those of a server will do.
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

// checkSubject wants the subject and nothing else.
func checkSubject(request *x509.CertificateRequest, want addonv1beta1.Subject) error {
	if !signingrequest.IsFor(request, want) {
		wanted := pkix.Name{CommonName: want.User, Organization: want.Groups, OrganizationalUnit: want.OrganizationUnits}
		return fmt.Errorf("its subject is %q; the add-on registers as %q", request.Subject, wanted)
	}
	return nil
}

// checkNames wants no other name than the add-on's own.
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
