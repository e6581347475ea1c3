package admission

import (
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capstan-io/capstan/internal/machinery/certrequest"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// approvers are the controllers of a hub in an existing cluster that approve certificates. RBAC can only let them approve all requests
// with a signer, and the certificates of this signer are valid in the whole cluster, whatever identity they name.
func approvers(hubNamespace string) []string {
	return []string{
		fleet.ServiceAccountUser(hubNamespace, fleet.ServiceAccountRegistrationController),
		fleet.ServiceAccountUser(hubNamespace, fleet.ServiceAccountAddOnManager),
	}
}

// ValidateApproval allows the controllers of a hub, whose accounts are in its namespace, to approve only identities of a fleet: a stolen
// token of one of them must not yield a certificate for another identity in the cluster that the hub is in. It fails with 403. Approvals
// by other users, and requests with signers of add-ons, are not checked.
func ValidateApproval(csr *certificatesv1.CertificateSigningRequest, sender Sender, hubNamespace string) error {
	if !slices.Contains(approvers(hubNamespace), sender.Name) || csr.Spec.SignerName != fleet.SignerKubeAPIServerClient {
		return nil
	}
	if err := checkFleetIdentity(csr); err != nil {
		return apierrors.NewForbidden(certificatesv1.Resource("certificatesigningrequests"), csr.Name, fmt.Errorf(
			"user %q may approve only identities of agents of clusters and add-ons: %w; if this one is meant to be, let a person approve it",
			sender.Name, err))
	}
	return nil
}

// checkFleetIdentity returns what in the requested subject is not a name that a hub gives to agents.
func checkFleetIdentity(csr *certificatesv1.CertificateSigningRequest) error {
	request, err := certrequest.Parse(csr)
	if err != nil {
		return err
	}
	subject := request.Subject
	if !fleet.IsAgentIdentity(subject.CommonName) {
		return fmt.Errorf("spec.request is for the user %q", subject.CommonName)
	}
	for _, group := range subject.Organization {
		if !fleet.IsAgentIdentity(group) && group != fleet.GroupAuthenticated {
			return fmt.Errorf("spec.request is for the group %q", group)
		}
	}
	if len(subject.Names) != 1+len(subject.Organization) {
		return errors.New("spec.request has attributes of other kinds than a user and groups")
	}
	// Other services may take such a name in the certificate for an identity. Add-ons have a DNS name.
	if len(request.EmailAddresses)+len(request.IPAddresses)+len(request.URIs) > 0 {
		return errors.New("spec.request has e-mail addresses, IP addresses or URIs")
	}
	return nil
}
