package addon

import (
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// SelfManaged reports whether an add-on manages its own lifecycle: where it is installed, and which configurations it has. The hub leaves
// that to the add-on if the annotation addon.open-cluster-management.io/lifecycle is set to another value than addon-manager. A manager
// runs such an add-on like any other, wherever its ManagedClusterAddOn exists.
func SelfManaged(catalogueEntry *addonv1beta1.ClusterManagementAddOn) bool {
	lifecycle, found := catalogueEntry.Annotations[fleet.AnnotationLifecycle]
	return found && lifecycle != fleet.LifecycleAddOnManager
}
