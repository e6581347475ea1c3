package inprocess

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	rules "github.com/capstan-io/capstan/internal/admission"
)

var placements = clusterv1beta1.GroupVersion.WithResource("placements").GroupResource()

// placementValidator checks Placements.
type placementValidator struct{ *admission.Handler }

var _ admission.ValidationInterface = (*placementValidator)(nil)

func newPlacementValidator() *placementValidator { return &placementValidator{Handler: writes()} }

// Validate is called by the server.
func (p *placementValidator) Validate(_ context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isAbout(request, placements) || keepsSpec(request) {
		return nil
	}
	placement, old, err := decodeBoth[clusterv1beta1.Placement](request)
	if err != nil {
		return err
	}
	return rules.ValidatePlacement(placement, old)
}
