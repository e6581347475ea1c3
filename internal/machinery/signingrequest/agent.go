package signingrequest

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RequestedAgent returns the cluster and the user that the request is for; ok only if it requests exactly the identity of an
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
	if err != nil || fleet.CheckAgentRequest(requested, cluster) != nil || !OfClient(csr.Spec.Usages) {
		return "", "", false
	}
	return cluster, requested.Subject.CommonName, true
}
