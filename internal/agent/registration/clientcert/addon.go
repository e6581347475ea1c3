package clientcert

import (
	"crypto/x509/pkix"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capstan-io/capstan/internal/machinery/certrequest"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// AddOn is what an agent requests on behalf of an add-on.
type AddOn struct {
	// Name of the add-on.
	Name string
	// SignerName is who is to sign.
	SignerName string
	// Subject of the certificate.
	Subject pkix.Name
}

func (r *Requester) subject() pkix.Name {
	if r.AddOn != nil {
		return r.AddOn.Subject
	}
	return pkix.Name{CommonName: r.Identity.User(), Organization: fleet.ClusterGroups(r.Identity.Cluster)}
}

func (r *Requester) addOnName() string {
	if r.AddOn == nil {
		return ""
	}
	return r.AddOn.Name
}

func (r *Requester) signer() string {
	switch {
	case r.AddOn != nil:
		return r.AddOn.SignerName
	case r.Signer != "":
		return r.Signer
	}
	return fleet.SignerKubeAPIServerClient
}

func (r *Requester) dnsNames() []string {
	if r.AddOn == nil {
		return nil
	}
	return []string{fleet.AddOnDNSName(r.AddOn.Name)}
}

func (r *Requester) generateName() string {
	if r.AddOn == nil {
		return fleet.ClusterCSRGenerateName(r.Identity.Cluster)
	}
	return fleet.AddOnCSRGenerateName(r.Identity.Cluster, r.AddOn.Name)
}

func (r *Requester) labels() map[string]string {
	labels := map[string]string{fleet.LabelClusterName: r.Identity.Cluster}
	if r.AddOn != nil {
		labels[fleet.LabelAddOnName] = r.AddOn.Name
	}
	return labels
}

// isSameRequest reports whether a request is for the same certificate, whatever its author and its key.
func (r *Requester) isSameRequest(csr *certificatesv1.CertificateSigningRequest) bool {
	request, err := certrequest.Parse(csr)
	if err != nil || csr.Spec.SignerName != r.signer() {
		return false
	}
	if r.AddOn == nil {
		return request.Subject.CommonName == r.Identity.User()
	}
	return SameSubject(request.Subject, r.AddOn.Subject)
}

// SameSubject reports whether two subjects are of the same user in the same groups and units, in whatever order.
func SameSubject(a, b pkix.Name) bool {
	return a.CommonName == b.CommonName && sets.New(a.Organization...).Equal(sets.New(b.Organization...)) &&
		sets.New(a.OrganizationalUnit...).Equal(sets.New(b.OrganizationalUnit...))
}
