package configuration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/rollout"
)

// report writes the status of the ClusterManagementAddOn. An add-on that manages itself reports its own progress.
func (c *Controller) report(ctx context.Context, s *snapshot) error {
	before := s.entry.DeepCopy()
	status := &s.entry.Status
	status.DefaultConfigReferences = s.defaults
	if !lookup.SelfManaged(s.entry) {
		status.InstallProgressions = nil
		for _, r := range s.rollouts {
			status.InstallProgressions = append(status.InstallProgressions, s.progression(r, before.Status.InstallProgressions))
		}
	}
	changed, err := patch.Status(ctx, c.client, s.entry, before)
	if changed && err == nil {
		c.recordEvents(s, before)
	}
	return client.IgnoreNotFound(err)
}

// installReferences returns the configurations for the clusters of a placement.
func (s *snapshot) installReferences(placement *lookup.Placement) (references []addonv1beta1.InstallConfigReference) {
	for _, config := range config.Effective(s.entry.Spec.DefaultConfigs, placement.Configs) {
		references = append(references, addonv1beta1.InstallConfigReference{
			ConfigGroupResource: config.ConfigGroupResource,
			DesiredConfig:       &addonv1beta1.ConfigSpecHash{ConfigReferent: config.ConfigReferent, SpecHash: s.resolve(config).Hash},
		})
	}
	return references
}

// progression returns how far the clusters of a placement are.
func (s *snapshot) progression(r *placementRollout, before []addonv1beta1.InstallProgression) addonv1beta1.InstallProgression {
	now := addonv1beta1.InstallProgression{PlacementRef: r.PlacementRef}
	if i := slices.IndexFunc(before, func(p addonv1beta1.InstallProgression) bool { return p.PlacementRef == r.PlacementRef }); i >= 0 {
		before[i].DeepCopyInto(&now)
	}
	had := now.ConfigReferences
	existing := installEntries(had)
	now.ConfigReferences = nil
	for i, e := range installEntries(r.references) {
		reference := r.references[i]
		if p := slices.Index(existing, e); p >= 0 {
			reference.LastAppliedConfig, reference.LastKnownGoodConfig = had[p].LastAppliedConfig, had[p].LastKnownGoodConfig
		}
		if r.isDone() {
			reference.LastAppliedConfig = reference.DesiredConfig.DeepCopy()
			reference.LastKnownGoodConfig = reference.DesiredConfig.DeepCopy()
		}
		now.ConfigReferences = append(now.ConfigReferences, reference)
	}
	condition := r.progressing()
	condition.ObservedGeneration = s.entry.Generation
	condition.LastTransitionTime = metav1.NewTime(s.now)
	meta.SetStatusCondition(&now.Conditions, condition)
	return now
}

func installEntries(references []addonv1beta1.InstallConfigReference) (all []entry) {
	for _, reference := range references {
		e := entry{kind: reference.ConfigGroupResource}
		if reference.DesiredConfig != nil {
			e.config = reference.DesiredConfig.ConfigReferent
		}
		all = append(all, e)
	}
	return all
}

// isDone reports whether the configurations have reached all clusters, without errors. A placement without clusters is not done.
func (r *placementRollout) isDone() bool { return r.configured > 0 && r.plan.Succeeded() }

// progressing returns the condition of a placement. Its message starts with the counts.
func (r *placementRollout) progressing() metav1.Condition {
	count := r.plan.Count
	failed := fmt.Sprintf("%d failed %d timeout.", count[rollout.HasFailed], count[rollout.TimedOut])
	if r.isDone() {
		return metav1.Condition{Type: fleet.ConditionProgressing, Status: metav1.ConditionFalse, Reason: fleet.ReasonCompleted,
			Message: strings.Join(append([]string{fmt.Sprintf("selected clusters %d. configured addons %d/%d completed with no errors, %s",
				len(r.Selected), count[rollout.Done], r.configured, failed)}, r.notes()...), " ")}
	}
	under := count[rollout.Start] + count[rollout.InProgress] + count[rollout.Soaking] + count[rollout.Done]
	message := []string{fmt.Sprintf("selected clusters %d. configured addons %d/%d progressing..., %s", len(r.Selected), under, r.configured,
		failed)}
	if r.Unknown != "" {
		message = append(message, r.Unknown)
	}
	if len(r.missing) > 0 {
		message = append(message, fmt.Sprintf("left out until they have a ManagedClusterAddOn: %s.", text.FirstFew(r.missing)))
	}
	if len(r.awaited) > 0 {
		message = append(message, fmt.Sprintf("mandatory groups in which no cluster has succeeded wait for a ManagedClusterAddOn: %s.",
			text.FirstFew(r.awaited)))
	}
	if len(r.held) > 0 {
		message = append(message, fmt.Sprintf("mandatory groups in which no cluster has succeeded wait until these can be configured: %s.",
			text.FirstFew(r.held)))
	}
	message = append(message, r.problems...)
	if r.plan.Phase == rollout.Stopped || r.plan.Phase == rollout.Invalid {
		message = append(message, r.plan.Message)
	}
	return metav1.Condition{Type: fleet.ConditionProgressing, Status: metav1.ConditionTrue, Reason: fleet.ReasonProgressing,
		Message: strings.Join(append(message, r.notes()...), " ")}
}

// notes returns what the rollout does otherwise than its strategy says.
func (r *placementRollout) notes() []string {
	if passed := r.PassedOver.String(); passed != "" {
		return append(slices.Clone(r.plan.Notes), passed)
	}
	return r.plan.Notes
}

// recordEvents writes an event for each placement whose rollout has ended or stopped.
func (c *Controller) recordEvents(s *snapshot, before *addonv1beta1.ClusterManagementAddOn) {
	for i, r := range s.rollouts {
		name := r.Namespace + "/" + r.Name
		now := s.entry.Status.InstallProgressions[i].Conditions
		was := func(yes func(metav1.Condition) bool) bool {
			return slices.ContainsFunc(before.Status.InstallProgressions, func(p addonv1beta1.InstallProgression) bool {
				return p.PlacementRef == r.PlacementRef && slices.ContainsFunc(p.Conditions, yes)
			})
		}
		switch {
		case r.isDone() && !was(func(cond metav1.Condition) bool { return cond.Reason == fleet.ReasonCompleted }):
			c.recorder.Eventf(s.entry, nil, corev1.EventTypeNormal, fleet.EventRolloutCompleted, "Rollout", "Placement %s: %s", name, now[0].Message)
		case r.plan.Phase == rollout.Stopped && !was(func(cond metav1.Condition) bool { return strings.Contains(cond.Message, "stopped:") }):
			c.recorder.Eventf(s.entry, nil, corev1.EventTypeWarning, fleet.EventRolloutStopped, "Rollout", "Placement %s: %s", name, r.plan.Message)
		}
	}
}
