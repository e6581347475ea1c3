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

// awaitsConfigs tells whether the add-on waits for configurations: for one that is announced, or for the hub's first decision. An
// add-on that has configurations keeps them until it gets others, and an add-on that is being deleted waits for none.
func (p *pass) awaitsConfigs() bool {
	if len(p.options.Configs) == 0 || !p.addOn.DeletionTimestamp.IsZero() {
		return false
	}
	references := p.addOn.Status.ConfigReferences
	if slices.ContainsFunc(references, func(r addonv1beta1.ConfigReference) bool { return addonconfig.IsPending(r) && p.reads(r) }) {
		return true
	}
	return p.hubConfigures() && len(references) == 0 && !meta.IsStatusConditionTrue(p.addOn.Status.Conditions, fleet.ConditionConfigured)
}

// hubConfigures tells whether the hub decides which configurations the add-on has.
func (p *pass) hubConfigures() bool {
	return p.catalogueEntry != nil && !addon.SelfManaged(p.catalogueEntry)
}

// reads tells whether the add-on may read a configuration.
func (p *pass) reads(reference addonv1beta1.ConfigReference) bool {
	return slices.ContainsFunc(p.options.Configs, func(kind schema.GroupVersionResource) bool {
		return kind.Group == reference.Group && kind.Resource == reference.Resource
	})
}

// tellOfConfigs says in a condition that the add-on waits for configurations, unless the hub's own condition says what is wrong with
// them.
func (p *pass) tellOfConfigs() {
	if meta.FindStatusCondition(p.addOn.Status.Conditions, fleet.ConditionConfigured) != nil {
		return
	}
	since := p.addOn.CreationTimestamp.Time
	if p.catalogueEntry != nil && p.catalogueEntry.CreationTimestamp.After(since) {
		since = p.catalogueEntry.CreationTimestamp.Time
	}
	if left := since.Add(configuredTimeout).Sub(p.Clock.Now()); left > 0 {
		p.comeBack(left)
		return
	}
	message := "The add-on is registered and deployed when all of its status.configReferences have a specHash: nobody has set that yet"
	if p.hubConfigures() {
		message = fmt.Sprintf("The add-on is registered and deployed when its condition %s is %s: the hub sets it, by the ClusterManagementAddOn %s, once "+
			"it knows the configurations",
			fleet.ConditionConfigured, metav1.ConditionTrue, p.catalogueEntry.Name)
	}
	p.set(fleet.ConditionRegistrationApplied, metav1.ConditionFalse, fleet.ReasonPermissionConfigPending, message)
}
