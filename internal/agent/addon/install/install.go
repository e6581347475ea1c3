// Package install determines where the agent of an add-on runs.
package install

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Namespace is that of the add-on's agent, on the cluster on which it runs.
func Namespace(addOn *addonv1beta1.ManagedClusterAddOn) string {
	if addOn.Status.Namespace != "" {
		return addOn.Status.Namespace
	}
	if namespace := addOn.Annotations[fleet.AnnotationInstallNamespace]; namespace != "" {
		return namespace
	}
	return fleet.NamespaceAgentAddOn
}

// Hosted reports whether the add-on's agent runs on a hosting cluster. To the agent of the managed cluster that is the cluster that it
// runs in itself: a hosted add-on needs a hosted agent. The annotation alone does not decide: it is copied from the ManagedCluster to all
// of its add-ons, and means nothing to those without a hosted mode. Managers of add-ons with that mode report whether the hosting cluster
// is valid, together with what they deploy. As long as a manager has reported neither, it is not known.
func Hosted(addOn *addonv1beta1.ManagedClusterAddOn) (hosted, known bool) {
	reports := func(condition string) bool {
		return meta.FindStatusCondition(addOn.Status.Conditions, condition) != nil
	}
	if addOn.Annotations[fleet.AnnotationHostingClusterName] == "" {
		return false, true
	}
	hosted = reports(fleet.ConditionHostingClusterValidity)
	return hosted, hosted || reports(fleet.ConditionManifestApplied)
}

// ModeTimeout is how long the manager of an add-on has to report whether it is hosted; not every add-on has a manager that does. It equals
// the default lease duration of add-on agents, so the state of an agent cannot be expected any sooner.
const ModeTimeout = 30 * time.Second

// Modes remember since when it is not known where the agents of add-ons run. They have no lock.
type Modes struct {
	undetermined map[types.NamespacedName]undetermined
}

type undetermined struct {
	addOn types.UID
	since time.Time
}

// Hosted reports whether the add-on's agent runs on a hosting cluster, as the function Hosted does. If that is still unknown ModeTimeout
// after the first call, the add-on is not hosted. Until then, wait is how long that will take; it is 0 once the answer is known.
func (p *Modes) Hosted(addOn *addonv1beta1.ManagedClusterAddOn, now time.Time) (hosted bool, wait time.Duration) {
	key := client.ObjectKeyFromObject(addOn)
	hosted, known := Hosted(addOn)
	if known {
		p.Forget(key)
		return hosted, 0
	}
	if p.undetermined == nil {
		p.undetermined = map[types.NamespacedName]undetermined{}
	}
	if p.undetermined[key].addOn != addOn.UID || p.undetermined[key].since.IsZero() {
		p.undetermined[key] = undetermined{addOn: addOn.UID, since: now}
	}
	return false, max(0, p.undetermined[key].since.Add(ModeTimeout).Sub(now))
}

// Forget drops what is remembered of an add-on.
func (p *Modes) Forget(addOn types.NamespacedName) {
	delete(p.undetermined, addOn)
}
