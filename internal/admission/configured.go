package admission

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// validateConfigured requires that the configurations of an add-on are known before its agent may be deployed, if an install strategy
// has installed it. Managers of the add-on framework deploy it when the object has the condition RegistrationApplied, which they set
// themselves, and with defaults if its status has no configurations. The status cannot be created with the object, so a manager may set
// the condition before the hub has written which configurations there are. It fails with 409, after which managers try again; the hub
// writes them within moments. For an object with the condition and without configurations, it is known then that there are none.
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
