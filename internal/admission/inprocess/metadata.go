package inprocess

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"

	rules "github.com/capstan-io/capstan/internal/admission"
)

// metadataLimiter keeps agents and joining agents from filling the hub through the part of objects that no schema bounds, for all
// kinds.
type metadataLimiter struct {
	*admission.Handler
	identifying
}

var _ admission.ValidationInterface = (*metadataLimiter)(nil)

func newMetadataLimiter(opts Options) *metadataLimiter {
	return &metadataLimiter{writes(), newIdentifying(opts)}
}

// Validate is called by the server.
func (p *metadataLimiter) Validate(_ context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	sender := p.identify(request)
	if !sender.Joining && len(sender.Clusters) == 0 || request.GetObject() == nil {
		return nil
	}
	object, err := meta.Accessor(request.GetObject())
	if err != nil {
		return nil //nolint:nilerr // a review, which is not stored
	}
	old, err := replaced(request)
	if err != nil {
		return err
	}
	return rules.ValidateManagedFields(object, old, request.GetResource().Resource, sender)
}
