package signingrequest

import (
	"crypto/x509"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RequestedAgent returns the cluster and the user that the request is for; ok only if it asks for exactly the identity of an
// agent of the cluster in its label: no other group, name or usage.
func RequestedAgent(csr *certificatesv1.CertificateSigningRequest) (cluster, user string, ok bool) {
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return "", "", false
	}
	return requestedAgent(csr)
}

// requestedAgent is for any signer.
func requestedAgent(csr *certificatesv1.CertificateSigningRequest) (cluster, user string, ok bool) {
	cluster = csr.Labels[fleet.LabelClusterName]
	if cluster == "" || csr.Labels[fleet.LabelAddOnName] != "" {
		return "", "", false
	}
	requested, err := Parse(csr)
	if err != nil || !ofAgent(requested, cluster) || !OfClient(csr.Spec.Usages) {
		return "", "", false
	}
	return cluster, requested.Subject.CommonName, true
}

func ofAgent(request *x509.CertificateRequest, cluster string) bool {
	requested, _, err := fleet.ParseClusterUser(request.Subject.CommonName)
	if err != nil || requested != cluster {
		return false
	}
	if len(request.DNSNames)+len(request.EmailAddresses)+len(request.IPAddresses)+len(request.URIs) > 0 {
		return false
	}
	if len(request.Subject.Names) != 1+len(request.Subject.Organization) {
		return false // attributes of other kinds, such as the UID of a user
	}
	organizations := sets.New(request.Subject.Organization...)
	return organizations.Has(fleet.ClusterGroup(cluster)) && sets.New(fleet.ClusterGroups(cluster)...).IsSuperset(organizations)
}
