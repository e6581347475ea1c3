package configuration

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/addon/progress"
	"github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/rollout"
)

// stateOf returns the rollout state of a cluster for the desired configurations, and since when it has been in it. One on which the rollout
// of the same configurations has succeeded stays a success, and holds up nobody. Others that fall ill after they were applied are
// Progressing or Failed, and have the whole deadline from then on. Without configurations, none has to wait for a manager.
func stateOf(addOn *addonv1beta1.ManagedClusterAddOn, desired []addonv1beta1.ConfigReference) (rollout.State, time.Time) {
	if addOn == nil || !hasDesired(addOn.Status.ConfigReferences, desired) {
		return rollout.ToApply, time.Time{}
	}
	progressing := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionProgressing)
	since, reason := addOn.CreationTimestamp.Time, fleet.ReasonCompleted
	if progressing != nil {
		since, reason = progressing.LastTransitionTime.Time, progressing.Reason
	}
	applied := progress.IsApplied(addOn)
	switch {
	case applied && isProven(addOn, desired):
		return rollout.Succeeded, time.Time{}
	case applied && (progressing == nil || progress.IsDone(addOn)):
		return rollout.Succeeded, since
	case len(desired) == 0 && reason == fleet.ReasonWaitingForManifestApplied:
		return rollout.Succeeded, time.Time{}
	case reason == fleet.ReasonFailed:
		return rollout.Failed, since
	default:
		return rollout.Progressing, since
	}
}

// isProven reports whether a rollout of the configurations has succeeded on the cluster of the add-on, which has not had others since.
func isProven(addOn *addonv1beta1.ManagedClusterAddOn, desired []addonv1beta1.ConfigReference) bool {
	return addOn.Annotations[fleet.AnnotationRolledOut] == digest(addOn.UID, desired)
}

// digest identifies configurations of an add-on and their states, as the value of AnnotationRolledOut: the UID of the add-on, and a hash of
// the configurations. With the UID, a copy of that on another add-on, or on one that is made again, is no success.
func digest(addOn types.UID, references []addonv1beta1.ConfigReference) string {
	hash := sha256.New()
	for _, reference := range references {
		fmt.Fprintf(hash, "%s %s\n", config.Key(reference.ConfigGroupResource, reference.DesiredConfig.ConfigReferent),
			reference.DesiredConfig.SpecHash)
	}
	return string(addOn) + "/" + hex.EncodeToString(hash.Sum(nil))
}

// hasDesired reports whether the references are to the desired configurations, in their desired states.
func hasDesired(have, desired []addonv1beta1.ConfigReference) bool {
	return slices.EqualFunc(have, desired, func(a, b addonv1beta1.ConfigReference) bool {
		return a.ConfigGroupResource == b.ConfigGroupResource && same(a.DesiredConfig, b.DesiredConfig)
	})
}

func same(a, b *addonv1beta1.ConfigSpecHash) bool {
	return a != nil && b != nil && *a == *b
}

// merge returns the desired references, with what was applied of the same configurations before. Of another configuration in the place of
// one, nothing has been applied, and nothing is known of one that is set back to what was applied last: works may be of the state between.
func merge(before, desired []addonv1beta1.ConfigReference) []addonv1beta1.ConfigReference {
	merged := make([]addonv1beta1.ConfigReference, 0, len(desired))
	had := entries(before)
	for _, reference := range desired {
		if p := slices.Index(had, entryOf(reference)); p >= 0 {
			applied := before[p].LastAppliedConfig
			if same(before[p].DesiredConfig, reference.DesiredConfig) || !same(applied, reference.DesiredConfig) {
				reference.LastAppliedConfig = applied.DeepCopy()
			}
		}
		reference.DesiredConfig = reference.DesiredConfig.DeepCopy()
		merged = append(merged, reference)
	}
	return merged
}

// announce returns the references before, and a pending one for each desired configuration of a type of which the add-on has none. A
// configuration that the add-on has stays until it is replaced.
func announce(have, desired []addonv1beta1.ConfigReference) []addonv1beta1.ConfigReference {
	announced := slices.DeleteFunc(slices.Clone(have), config.IsPending)
	given := map[addonv1beta1.ConfigGroupResource]bool{}
	for _, reference := range announced {
		given[reference.ConfigGroupResource] = true
	}
	for _, reference := range desired {
		if !given[reference.ConfigGroupResource] {
			announced = append(announced, config.Pending([]addonv1beta1.AddOnConfig{{
				ConfigGroupResource: reference.ConfigGroupResource, ConfigReferent: reference.DesiredConfig.ConfigReferent,
			}})...)
		}
	}
	slices.SortStableFunc(announced, func(a, b addonv1beta1.ConfigReference) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return announced
}

// entry identifies a reference.
type entry struct {
	kind   addonv1beta1.ConfigGroupResource
	config addonv1beta1.ConfigReferent
}

func entryOf(reference addonv1beta1.ConfigReference) entry {
	e := entry{kind: reference.ConfigGroupResource}
	if reference.DesiredConfig != nil {
		e.config = reference.DesiredConfig.ConfigReferent
	}
	return e
}

func entries(references []addonv1beta1.ConfigReference) (all []entry) {
	for _, reference := range references {
		all = append(all, entryOf(reference))
	}
	return all
}
