package signingrequest

import (
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// GRPC says how agents register by the gRPC server of a hub. The zero value says that none do.
type GRPC struct {
	// Server is the user as whom the server makes requests. Each names the user who requested it in fleet.AnnotationCSRUser, which counts
	// in requests of this user alone.
	Server string
	// Users are those whose requests for a certificate of the server's signer are approved without a decision of an administrator.
	Users []string
}

// RequestedAgent is like the function of this name, for requests to the server's signer as well. It also returns the requester; an empty
// name, if the server does not say.
func (g GRPC) RequestedAgent(csr *certificatesv1.CertificateSigningRequest) (cluster, user, requester string, ok bool) {
	switch signer := csr.Spec.SignerName; {
	case signer == certificatesv1.KubeAPIServerClientSignerName, signer == fleet.SignerGRPC && g.Server != "":
		cluster, user, ok = requestedAgent(csr)
	}
	if !ok {
		return "", "", "", false
	}
	return cluster, user, g.Requester(csr), true
}

// Requester returns who requests a certificate.
func (g GRPC) Requester(csr *certificatesv1.CertificateSigningRequest) string {
	if g.Forwarded(csr) {
		return csr.Annotations[fleet.AnnotationCSRUser]
	}
	return csr.Spec.Username
}

// Forwarded reports whether the server made the request, for somebody else.
func (g GRPC) Forwarded(csr *certificatesv1.CertificateSigningRequest) bool {
	return g.Server != "" && csr.Spec.Username == g.Server
}

// FromTrusted reports whether the requester is a trusted user: of the server's users, for its signer, and of the given ones for that of
// the API server.
func (g GRPC) FromTrusted(csr *certificatesv1.CertificateSigningRequest, users []string) bool {
	if csr.Spec.SignerName == fleet.SignerGRPC {
		users = g.Users
	}
	requester := g.Requester(csr)
	return requester != "" && slices.Contains(users, requester)
}
