package installation

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	addonconfig "github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// configuredTimeout is how long the hub may take to set Configured before a condition says that the add-on waits for it. The hub
// usually sets it at once; a write for each add-on until then would be wasted.
const configuredTimeout = 10 * time.Second

// awaitsConfigs reports whether the add-on waits for configurations: for one that is announced, or for the hub's first decision. An
// add-on that has configurations keeps them until it gets others, and an add-on that is being deleted waits for none.
func (r *reconciliation) awaitsConfigs() bool {
	if len(r.options.Configs) == 0 || !r.addOn.DeletionTimestamp.IsZero() {
		return false
	}
	references := r.addOn.Status.ConfigReferences
	if slices.ContainsFunc(references, func(c addonv1beta1.ConfigReference) bool { return addonconfig.IsPending(c) && r.reads(c) }) {
		return true
	}
	return r.hubConfigures() && len(references) == 0 && !meta.IsStatusConditionTrue(r.addOn.Status.Conditions, fleet.ConditionConfigured)
}

// hubConfigures reports whether the hub decides which configurations the add-on has.
func (r *reconciliation) hubConfigures() bool {
	return r.catalogueEntry != nil && !addon.SelfManaged(r.catalogueEntry)
}

// reads reports whether the add-on may read a configuration.
func (r *reconciliation) reads(reference addonv1beta1.ConfigReference) bool {
	return slices.ContainsFunc(r.options.Configs, func(kind schema.GroupVersionResource) bool {
		return kind.Group == reference.Group && kind.Resource == reference.Resource
	})
}

// reportMissingConfigs says in a condition that the add-on waits for configurations, unless the hub's own condition says what is wrong with
// them.
func (r *reconciliation) reportMissingConfigs() {
	if meta.FindStatusCondition(r.addOn.Status.Conditions, fleet.ConditionConfigured) != nil {
		return
	}
	since := r.addOn.CreationTimestamp.Time
	if r.catalogueEntry != nil && r.catalogueEntry.CreationTimestamp.After(since) {
		since = r.catalogueEntry.CreationTimestamp.Time
	}
	if left := since.Add(configuredTimeout).Sub(r.Clock.Now()); left > 0 {
		r.requeueAfter(left)
		return
	}
	message := "The add-on is registered and deployed when all of its status.configReferences have a specHash: nobody has set that yet"
	if r.hubConfigures() {
		message = fmt.Sprintf("The add-on is registered and deployed when its condition %s is %s: the hub sets it, by the ClusterManagementAddOn %s, once "+
			"it knows the configurations",
			fleet.ConditionConfigured, metav1.ConditionTrue, r.catalogueEntry.Name)
	}
	r.set(fleet.ConditionRegistrationApplied, metav1.ConditionFalse, fleet.ReasonPermissionConfigPending, message)
}
