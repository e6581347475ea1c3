package inprocess

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	rules "github.com/capstan-io/capstan/internal/admission"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var certificateRequests = certificatesv1.Resource("certificatesigningrequests")

// requestValidator checks the CertificateSigningRequests of agents, of joining agents, and what the controllers of a hub in an existing
// cluster approve. Those of a standalone hub are part of its API server, and have no account whose token could be stolen. It counts
// requests only where the server gives it informers, as a standalone hub does.
type requestValidator struct {
	*admission.Handler
	identifying
	Options

	requests cache.SharedIndexInformer
	failed   error
}

var (
	_ admission.ValidationInterface                = (*requestValidator)(nil)
	_ initializer.WantsExternalKubeInformerFactory = (*requestValidator)(nil)
)

func newRequestValidator(opts Options) *requestValidator {
	return &requestValidator{Handler: writes(), identifying: newIdentifying(opts), Options: opts}
}

// requestsOf indexes requests by their requester, and undecidedOf and undecidedWith undecided ones by their requester and by its
// credential.
const (
	requestsOf    = "requests-of"
	undecidedOf   = "undecided-of"
	undecidedWith = "undecided-with"
)

// SetExternalKubeInformerFactory is called by the server.
func (p *requestValidator) SetExternalKubeInformerFactory(factory informers.SharedInformerFactory) {
	p.requests = factory.Certificates().V1().CertificateSigningRequests().Informer()
	all := func(by func(*certificatesv1.CertificateSigningRequest) string) cache.IndexFunc {
		return func(object any) ([]string, error) {
			csr, ok := object.(*certificatesv1.CertificateSigningRequest)
			if !ok || by(csr) == "" {
				return nil, nil
			}
			return []string{by(csr)}, nil
		}
	}
	undecided := func(by func(*certificatesv1.CertificateSigningRequest) string) cache.IndexFunc {
		return all(func(csr *certificatesv1.CertificateSigningRequest) string {
			if len(csr.Status.Conditions) > 0 {
				return ""
			}
			return by(csr)
		})
	}
	p.failed = p.requests.AddIndexers(cache.Indexers{
		requestsOf:    all(p.requester),
		undecidedOf:   undecided(p.requester),
		undecidedWith: undecided(func(csr *certificatesv1.CertificateSigningRequest) string { return credentialOf(csr.Spec.Extra) }),
	})
}

// requester returns who requests a certificate: who made the request or, for one of the gRPC server, whom that records.
func (p *requestValidator) requester(csr *certificatesv1.CertificateSigningRequest) string {
	if csr.Spec.Username == p.grpcServer {
		return recordedUser(csr, fleet.AnnotationCSRUser, csr.Spec.Username)
	}
	return csr.Spec.Username
}

// ValidateInitialization is called by the server before the first request.
func (p *requestValidator) ValidateInitialization() error { return p.failed }

// Validate is called by the server.
func (p *requestValidator) Validate(_ context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	if request.GetSubresource() == "approval" && request.GetResource().GroupResource() == certificateRequests {
		return p.validateApproval(request)
	}
	if !isAbout(request, certificateRequests) {
		return nil
	}
	csr, err := meta.Accessor(request.GetObject())
	if err != nil {
		return fmt.Errorf("read the metadata of a CertificateSigningRequest: %w", err)
	}
	old, err := replaced(request)
	if err != nil {
		return err
	}
	sender := p.identify(request)
	if err := rules.ValidateCertificateSigningRequest(csr, old, sender); err != nil || request.GetOperation() != admission.Create {
		return err
	}
	return p.validateCount(sender)
}

// validateCount checks how many requests a sender has, according to the cache.
func (p *requestValidator) validateCount(sender rules.Sender) error {
	if p.requests == nil {
		return nil
	}
	indexer := p.requests.GetIndexer()
	undecided, err := count(indexer, undecidedOf, sender.Name, undecidedWith, sender.Credential)
	if err != nil {
		return err
	}
	kept, err := indexer.IndexKeys(requestsOf, sender.Name)
	if err != nil {
		return err
	}
	return rules.ValidateRequestCount(sender, undecided, len(kept), p.JoinLimit)
}

func (p *requestValidator) validateApproval(request admission.Attributes) error {
	if _, ok := request.GetObject().(*unstructured.Unstructured); !ok {
		return nil // in process the object is of a type of the API server, and the accounts do not exist
	}
	csr, err := decode[certificatesv1.CertificateSigningRequest](request.GetObject())
	if err != nil {
		return err
	}
	return rules.ValidateApproval(csr, rules.Sender{Name: request.GetUserInfo().GetName()}, p.HubNamespace)
}
