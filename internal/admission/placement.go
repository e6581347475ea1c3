package admission

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/fleet"
)

var placementKind = clusterv1beta1.GroupVersion.WithKind("Placement").GroupKind()

// ValidatePlacement refuses to create a Placement whose name is no value of a label: its PlacementDecisions could not carry
// it, and are found by it (PL-16). It fails with 400. One that exists (old is not nil) may be changed all the same.
func ValidatePlacement(placement, old metav1.Object) error {
	if old != nil {
		return nil
	}
	var errs field.ErrorList
	for _, problem := range validation.IsValidLabelValue(placement.GetName()) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), placement.GetName(),
			"the label "+fleet.LabelPlacement+" of its PlacementDecisions has to hold the name, which "+problem))
	}
	if len(errs) == 0 {
		return nil
	}
	return badRequest(placementKind, placement.GetName(), errs)
}
