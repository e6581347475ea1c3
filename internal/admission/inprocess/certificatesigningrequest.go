package inprocess

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"

	rules "github.com/capstan-io/capstan/internal/admission"
	"github.com/capstan-io/capstan/internal/fleet"
)

var certificateRequests = certificatesv1.Resource("certificatesigningrequests")

// requestValidator checks the CertificateSigningRequests of agents (R10).
type requestValidator struct{ *admission.Handler }

var _ admission.ValidationInterface = (*requestValidator)(nil)

func newRequestValidator() *requestValidator { return &requestValidator{Handler: writes()} }

// Validate is called by the server.
func (p *requestValidator) Validate(_ context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isAbout(request, certificateRequests) {
		return nil
	}
	csr, err := meta.Accessor(request.GetObject())
	if err != nil {
		return fmt.Errorf("read the metadata of a CertificateSigningRequest: %w", err)
	}
	who := request.GetUserInfo()
	return rules.ValidateCertificateSigningRequest(csr, rules.Sender{Name: who.GetName(), Clusters: fleet.AgentClusters(who.GetGroups())})
}
