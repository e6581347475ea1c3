package admission

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	scheduler "github.com/capstan-io/capstan/internal/placement"
)

var placementKind = clusterv1beta1.GroupVersion.WithKind("Placement").GroupKind()

// ValidatePlacement refuses to create a Placement (old is nil) whose name is not a valid label value: its PlacementDecisions have it as
// a label, by which they are found. It also refuses a changed spec with too many expressions, selectors or other entries, or with a
// toleration whose operator does not go with its key or value. It fails with 400. Other mistakes are reported in the condition
// PlacementMisconfigured.
func ValidatePlacement(placement, old *clusterv1beta1.Placement) error {
	var errs field.ErrorList
	if old == nil {
		for _, problem := range validation.IsValidLabelValue(placement.Name) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), placement.Name,
				"the label "+fleet.LabelPlacement+" of its PlacementDecisions has to hold the name, which "+problem))
		}
	}
	if old == nil || !equality.Semantic.DeepEqual(placement.Spec, old.Spec) {
		for _, bad := range []*scheduler.Misconfiguration{scheduler.CheckBounds(&placement.Spec), scheduler.CheckTolerations(&placement.Spec)} {
			if bad != nil {
				errs = append(errs, field.Forbidden(field.NewPath("spec"), bad.Reason))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return badRequest(placementKind, placement.Name, errs)
}
