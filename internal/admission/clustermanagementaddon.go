package admission

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/addon/dependencies"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/rollout"
)

var managementAddOnKind = addonv1beta1.GroupVersion.WithKind("ClusterManagementAddOn").GroupKind()

// ValidateClusterManagementAddOn checks a ClusterManagementAddOn that is created (old is nil) or updated: its rollout strategies, its
// configurations, and the annotations about its dependencies and the time limit of its removal. It fails with 400. An update is checked
// only for what it changes.
func ValidateClusterManagementAddOn(addOn, old *addonv1beta1.ClusterManagementAddOn) error {
	var errs field.ErrorList
	if old == nil || !equality.Semantic.DeepEqual(addOn.Spec.InstallStrategy, old.Spec.InstallStrategy) {
		errs = append(errs, validateInstallStrategy(field.NewPath("spec", "installStrategy"), addOn.Spec.InstallStrategy)...)
	}
	annotations := field.NewPath("metadata", "annotations")
	isNew := func(key string) bool { return old == nil || addOn.Annotations[key] != old.Annotations[key] }
	if isNew(fleet.AnnotationDependsOn) {
		errs = append(errs, dependencies.Validate(annotations.Key(fleet.AnnotationDependsOn), addOn.Name,
			addOn.Annotations[fleet.AnnotationDependsOn])...)
	}
	if isNew(fleet.AnnotationPreDeleteTimeout) {
		errs = append(errs, validateTimeout(annotations.Key(fleet.AnnotationPreDeleteTimeout),
			addOn.Annotations[fleet.AnnotationPreDeleteTimeout])...)
	}
	if len(errs) == 0 {
		return nil
	}
	return badRequest(managementAddOnKind, addOn.Name, errs)
}

func validateInstallStrategy(path *field.Path, strategy addonv1beta1.InstallStrategy) (errs field.ErrorList) {
	for i, placement := range strategy.Placements {
		at := path.Child("placements").Index(i)
		errs = append(errs, rollout.Validate(at.Child("rolloutStrategy"), placement.RolloutStrategy)...)
		for j, config := range placement.Configs {
			if config.Name == addonv1beta1.ReservedNoDefaultConfigName {
				errs = append(errs, field.Invalid(at.Child("configs").Index(j).Child("name"), config.Name,
					"stands for no default, and only in spec.defaultConfigs: name a configuration, or leave the entry out"))
			}
		}
	}
	return errs
}

func validateTimeout(path *field.Path, value string) field.ErrorList {
	if timeout, err := time.ParseDuration(value); value != "" && (err != nil || timeout < 0) {
		return field.ErrorList{field.Invalid(path, value,
			"write how long the removal may wait for the pre-delete hooks, such as 30m, or 0s for not at all")}
	}
	return nil
}
