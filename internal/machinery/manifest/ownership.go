package manifest

import (
	"slices"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// IsOwned reports whether a work owns an object that it names, so that the object goes with the work.
func IsOwned(option *workv1.DeleteOption, strategy workv1.UpdateStrategyType, resource workv1.ResourceIdentifier) bool {
	if strategy == workv1.UpdateStrategyTypeReadOnly {
		return false
	}
	if option == nil {
		return true
	}
	switch option.PropagationPolicy {
	case workv1.DeletePropagationPolicyTypeForeground:
		return true
	case workv1.DeletePropagationPolicyTypeOrphan:
		return false
	}
	return option.SelectivelyOrphan == nil || !slices.ContainsFunc(option.SelectivelyOrphan.OrphaningRules, func(r workv1.OrphaningRule) bool {
		named := workv1.ResourceIdentifier{Group: r.Group, Resource: r.Resource}
		return isOfKind(named, resource) && r.Namespace == resource.Namespace && r.Name == resource.Name
	})
}

// NamesForeground reports whether a work requests explicitly that its objects go after their dependents. The API server fills in
// Foreground where a delete option names no policy. Users who set something else there, such as a TTL, need not mean it; an option that
// has nothing else was set for its policy.
func NamesForeground(option *workv1.DeleteOption) bool {
	return option != nil && option.PropagationPolicy == workv1.DeletePropagationPolicyTypeForeground &&
		option.TTLSecondsAfterFinished == nil && option.SelectivelyOrphan == nil
}
