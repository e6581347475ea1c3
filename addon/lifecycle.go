package addon

import (
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// SelfManaged tells whether the hub leaves the life of an add-on to the add-on itself: where it is installed, and
// which configurations it has. So it does if the annotation addon.open-cluster-management.io/lifecycle is there and is not
// addon-manager. A manager runs such an add-on like any other, wherever somebody creates its ManagedClusterAddOn.
func SelfManaged(catalogueEntry *addonv1beta1.ClusterManagementAddOn) bool {
	lifecycle, found := catalogueEntry.Annotations[fleet.AnnotationLifecycle]
	return found && lifecycle != fleet.LifecycleAddOnManager
}
