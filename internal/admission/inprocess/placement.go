package inprocess

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	rules "github.com/capstan-io/capstan/internal/admission"
)

var placements = clusterv1beta1.GroupVersion.WithResource("placements").GroupResource()

// placementValidator checks the names of Placements.
type placementValidator struct{ *admission.Handler }

var _ admission.ValidationInterface = (*placementValidator)(nil)

func newPlacementValidator() *placementValidator { return &placementValidator{Handler: writes()} }

// Validate is called by the server.
func (p *placementValidator) Validate(_ context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isAbout(request, placements) {
		return nil
	}
	placement, err := meta.Accessor(request.GetObject())
	if err != nil {
		return fmt.Errorf("read the metadata of a Placement: %w", err)
	}
	var old metav1.Object
	if request.GetOperation() == admission.Update {
		if old, err = meta.Accessor(request.GetOldObject()); err != nil {
			return fmt.Errorf("read the metadata of a Placement: %w", err)
		}
	}
	return rules.ValidatePlacement(placement, old)
}
