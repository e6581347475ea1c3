package admission

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/rollout"
)

var (
	replicaSetKind      = workv1alpha1.GroupVersion.WithKind("ManifestWorkReplicaSet").GroupKind()
	managementAddOnKind = addonv1beta1.GroupVersion.WithKind("ClusterManagementAddOn").GroupKind()
)

// ValidateManifestWorkReplicaSet holds a ManifestWorkReplicaSet that is created (old is nil) or updated against WH-12: the
// manifests of its template against the rules of a ManifestWork, and its rollout strategies. It fails with 400. What an
// update leaves alone is not asked about again. Of the options it needs the limit.
func ValidateManifestWorkReplicaSet(set, old *workv1alpha1.ManifestWorkReplicaSet, opts ManifestWorkOptions) error {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	workload := &set.Spec.ManifestWorkTemplate.Workload
	if old == nil || !equality.Semantic.DeepEqual(*workload, old.Spec.ManifestWorkTemplate.Workload) {
		path := spec.Child("manifestWorkTemplate", "workload", "manifests")
		errs = append(errs, validateManifests(path, workload.Manifests, opts.Limit)...)
	}
	if old == nil || !equality.Semantic.DeepEqual(set.Spec.PlacementRefs, old.Spec.PlacementRefs) {
		for i, ref := range set.Spec.PlacementRefs {
			path := spec.Child("placementRefs").Index(i).Child("rolloutStrategy")
			errs = append(errs, rollout.Validate(path, ref.RolloutStrategy)...)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return badRequest(replicaSetKind, set.Name, errs)
}

// ValidateClusterManagementAddOn holds the rollout strategies of a ClusterManagementAddOn that is created (old is nil) or
// updated against what a rollout can use (AM-20). It fails with 400. Strategies that an update leaves alone are not asked
// about again.
func ValidateClusterManagementAddOn(addOn, old *addonv1beta1.ClusterManagementAddOn) error {
	if old != nil && equality.Semantic.DeepEqual(addOn.Spec.InstallStrategy, old.Spec.InstallStrategy) {
		return nil
	}
	var errs field.ErrorList
	for i, placement := range addOn.Spec.InstallStrategy.Placements {
		path := field.NewPath("spec", "installStrategy", "placements").Index(i).Child("rolloutStrategy")
		errs = append(errs, rollout.Validate(path, placement.RolloutStrategy)...)
	}
	if len(errs) == 0 {
		return nil
	}
	return badRequest(managementAddOnKind, addOn.Name, errs)
}
