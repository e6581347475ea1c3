package admission

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// validateConfigured has the configurations of an add-on that an install strategy has brought to a cluster be known before its agent may be
// deployed there. Managers of the add-on framework deploy it when they find the condition RegistrationApplied on the object, which they set
// themselves, and without any configuration in its status with defaults. The status cannot be created with the object, so a manager may
// set the condition before the hub has said which configurations there are. It fails with 409, on which managers try again; the hub says
// it within moments. Of an object that has the condition and no configurations, it is known then that there are none.
func validateConfigured(addOn, old *unstructured.Unstructured) error {
	switch {
	case addOn == nil || addOn.GetAnnotations()[fleet.AnnotationInstalledBy] != fleet.InstalledByStrategy,
		!hasCondition(addOn, fleet.ConditionRegistrationApplied) || hasCondition(old, fleet.ConditionRegistrationApplied),
		hasCondition(addOn, fleet.ConditionConfigured) || hasConfigReferences(addOn):
		return nil
	}
	return apierrors.NewConflict(managedClusterAddOnResource, addOn.GetName(), errors.New(
		"the hub has not said yet which configurations it has, in status.configReferences and the condition "+fleet.ConditionConfigured+": set "+
			fleet.ConditionRegistrationApplied+" after that, or an agent is deployed without its configurations"))
}

func hasCondition(addOn *unstructured.Unstructured, kind string) bool {
	conditions, _ := statusOf(addOn)["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(one any) bool {
		condition, _ := one.(map[string]any)
		return condition["type"] == kind
	})
}

func hasConfigReferences(addOn *unstructured.Unstructured) bool {
	references, _ := statusOf(addOn)["configReferences"].([]any)
	return len(references) > 0
}

func statusOf(addOn *unstructured.Unstructured) map[string]any {
	if addOn == nil {
		return nil
	}
	status, _ := addOn.Object["status"].(map[string]any)
	return status
}
