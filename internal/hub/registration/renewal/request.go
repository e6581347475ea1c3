package renewal

import (
	"crypto/x509"
	"encoding/pem"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capstan-io/capstan/internal/fleet"
)

// renews tells whether the request asks for exactly the identity that the requester has now, as the agent of the cluster in
// the label: the same user, no group and no usage beyond what a cluster's agent has.
func renews(csr *certificatesv1.CertificateSigningRequest) bool {
	cluster := csr.Labels[fleet.LabelClusterName]
	if cluster == "" || csr.Labels[fleet.LabelAddOnName] != "" || csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return false
	}
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return false
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || request.CheckSignature() != nil {
		return false
	}
	return request.Subject.CommonName == csr.Spec.Username && ofAgent(request, cluster) && usagesOfAgent(csr.Spec.Usages)
}

func ofAgent(request *x509.CertificateRequest, cluster string) bool {
	requested, _, err := fleet.ParseClusterUser(request.Subject.CommonName)
	if err != nil || requested != cluster {
		return false
	}
	if len(request.DNSNames)+len(request.EmailAddresses)+len(request.IPAddresses)+len(request.URIs) > 0 {
		return false
	}
	organizations := sets.New(request.Subject.Organization...)
	return organizations.Has(fleet.ClusterGroup(cluster)) && sets.New(fleet.ClusterGroups(cluster)...).IsSuperset(organizations)
}

func usagesOfAgent(usages []certificatesv1.KeyUsage) bool {
	allowed := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth}
	for _, u := range usages {
		if !slices.Contains(allowed, u) {
			return false
		}
	}
	return slices.Contains(usages, certificatesv1.UsageClientAuth)
}
