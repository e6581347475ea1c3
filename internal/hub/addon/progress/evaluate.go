package progress

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Evaluate returns the condition Progressing, which reports how far the desired configurations of an add-on are applied on its cluster,
// from its works. applied reports whether all of them are. It reads only labels, annotations and conditions, so it works with every
// manager. The condition also reports configurations that are not supported, unless that would hide what a rollout needs.
func Evaluate(addOn *addonv1beta1.ManagedClusterAddOn, works []workv1.ManifestWork) (condition metav1.Condition, applied bool) {
	condition, applied = conditionOfWorks(addOn, works)
	unsupported := Unsupported(addOn)
	if len(unsupported) == 0 {
		return condition, applied
	}
	message := unsupportedMessage(unsupported, addOn)
	if condition.Reason == fleet.ReasonFailed || hasDegraded(addOn, condition) {
		condition.Message += "; " + message
		return condition, applied
	}
	// The supported configurations take effect all the same.
	return is(metav1.ConditionFalse, fleet.ReasonConfigurationUnsupported, message), applied
}

// hasDegraded reports whether configurations had been applied and are not healthy any more: the soak time of a rollout has to notice
// that, as it has to notice a failure.
func hasDegraded(addOn *addonv1beta1.ManagedClusterAddOn, condition metav1.Condition) bool {
	return condition.Reason != fleet.ReasonCompleted && len(addOn.Status.ConfigReferences) > 0 && IsApplied(addOn)
}

func conditionOfWorks(addOn *addonv1beta1.ManagedClusterAddOn, works []workv1.ManifestWork) (condition metav1.Condition, applied bool) {
	conditions := addOn.Status.Conditions
	deployed := meta.FindStatusCondition(conditions, fleet.ConditionManifestApplied)
	if deployed == nil {
		return is(metav1.ConditionFalse, fleet.ReasonWaitingForManifestApplied,
			"waiting for the condition ManifestApplied: the manager of the add-on has not deployed it"), false
	}
	if isHosted(addOn) && meta.FindStatusCondition(conditions, fleet.ConditionHostingManifestApplied) == nil {
		return is(metav1.ConditionFalse, fleet.ReasonWaitingForHostingManifestApplied,
			"waiting for the condition HostingManifestApplied: the manager of the add-on has not deployed it on the hosting cluster"), false
	}
	if fleet.IsBuiltIn(addOn) {
		return is(metav1.ConditionFalse, fleet.ReasonCompleted, "completed: the agent of the cluster has the add-on built in"), true
	}
	if len(works) == 0 && isNothing(deployed, addOn) {
		return is(metav1.ConditionFalse, fleet.ReasonCompleted, "completed: the cluster is to have nothing of the add-on"), true
	}
	if len(works) == 0 {
		return is(metav1.ConditionTrue, fleet.ReasonProgressing, "no addon works"), false
	}
	for i := range works {
		if !config.MadeOf(works[i].Annotations, addOn.Status.ConfigReferences) {
			return is(metav1.ConditionTrue, fleet.ReasonProgressing, "mca and work configs mismatch"), false
		}
	}
	for i := range works {
		if why := failure(&works[i]); why != "" {
			return is(metav1.ConditionFalse, fleet.ReasonFailed, why), false
		}
	}
	for i := range works {
		if !isReady(&works[i]) {
			return is(metav1.ConditionTrue, fleet.ReasonProgressing, "work is not ready"), false
		}
	}
	return is(metav1.ConditionFalse, fleet.ReasonCompleted, "completed with no errors"), true
}

// isNothing reports whether the manager of an add-on says that the cluster is to have nothing of it with the desired configurations.
// Managers of the add-on framework do not say so.
func isNothing(deployed *metav1.Condition, addOn *addonv1beta1.ManagedClusterAddOn) bool {
	return deployed.Reason == fleet.ReasonAddOnNothingToApply && config.NothingMadeOf(deployed.Message, addOn.Status.ConfigReferences)
}

// isHosted reports whether the agent of the add-on runs on a hosting cluster. The annotation alone does not show it: it is copied from the
// cluster to all of its add-ons, including those without hosted mode. Managers of the others set a condition about the hosting cluster.
func isHosted(addOn *addonv1beta1.ManagedClusterAddOn) bool {
	return addOn.Annotations[fleet.AnnotationHostingClusterName] != "" &&
		meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionHostingClusterValidity) != nil
}

func is(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: fleet.ConditionProgressing, Status: status, Reason: reason, Message: message}
}

// isReady reports whether the agent reports the current generation of a work as applied and available.
func isReady(work *workv1.ManifestWork) bool {
	return has(work, fleet.ConditionApplied, metav1.ConditionTrue) && has(work, fleet.ConditionAvailable, metav1.ConditionTrue)
}

// failure returns why a work is not ready; it may become so later.
func failure(work *workv1.ManifestWork) string {
	name := work.Namespace + "/" + work.Name
	switch {
	case has(work, fleet.ConditionApplied, metav1.ConditionFalse):
		return fmt.Sprintf("ManifestWork %s could not be applied, its status says why", name)
	case has(work, fleet.ConditionDegraded, metav1.ConditionTrue):
		return fmt.Sprintf("ManifestWork %s is degraded, its status says why", name)
	default:
		return ""
	}
}

func has(work *workv1.ManifestWork, kind string, status metav1.ConditionStatus) bool {
	condition := meta.FindStatusCondition(work.Status.Conditions, kind)
	return condition != nil && condition.Status == status && condition.ObservedGeneration == work.Generation
}

// Unsupported returns the configurations of the ManagedClusterAddOn itself whose type the add-on does not support. There are none until
// its manager has listed the supported types.
func Unsupported(addOn *addonv1beta1.ManagedClusterAddOn) []addonv1beta1.AddOnConfig {
	if !ListsSupportedConfigs(addOn) {
		return nil
	}
	_, unsupported := config.Supported(addOn.Spec.Configs, addOn.Status.SupportedConfigs)
	return unsupported
}

// ListsSupportedConfigs reports whether the manager of an add-on has listed the types of configurations that it supports.
func ListsSupportedConfigs(addOn *addonv1beta1.ManagedClusterAddOn) bool {
	return len(addOn.Status.SupportedConfigs) > 0 ||
		meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionRegistrationApplied) != nil
}

func unsupportedMessage(unsupported []addonv1beta1.AddOnConfig, addOn *addonv1beta1.ManagedClusterAddOn) string {
	first := unsupported[0]
	message := fmt.Sprintf("Configuration with gvr %s/%s is not supported for this addon: remove %s from spec.configs", first.Group,
		first.Resource, first.Name)
	if len(addOn.Status.SupportedConfigs) == 0 {
		return message + "; the add-on supports no configurations"
	}
	var supported []string
	for _, kind := range addOn.Status.SupportedConfigs {
		supported = append(supported, kind.Resource+"."+kind.Group)
	}
	slices.Sort(supported)
	return fmt.Sprintf("%s; status.supportedConfigs lists %s", message, supported)
}
