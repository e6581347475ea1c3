package inprocess

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"

	rules "github.com/capstan-io/capstan/internal/admission"
)

var leases = coordinationv1.Resource("leases")

// leaseValidator bounds the Leases of agents.
type leaseValidator struct {
	*admission.Handler
	identifying
}

var _ admission.ValidationInterface = (*leaseValidator)(nil)

func newLeaseValidator(opts Options) *leaseValidator {
	return &leaseValidator{writes(), newIdentifying(opts)}
}

// Validate is called by the server.
func (p *leaseValidator) Validate(_ context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isAbout(request, leases) {
		return nil
	}
	lease, err := meta.Accessor(request.GetObject())
	if err != nil {
		return fmt.Errorf("read the metadata of a Lease: %w", err)
	}
	old, err := replaced(request)
	if err != nil {
		return err
	}
	return rules.ValidateLease(lease, old, p.identify(request))
}
