package progress

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// patience is how long the manager of an add-on has to take up its deletion before anything is said about it.
const patience = time.Minute

// ofManagers are the finalizers that the manager of an add-on takes off, and the conditions by which it says what it waits for before.
var ofManagers = []struct {
	finalizers        []string
	condition, reason string
}{
	{[]string{fleet.FinalizerAddOnPreDelete, fleet.DeprecatedFinalizerAddOnPreDelete, fleet.FinalizerHostingAddOnPreDelete,
		fleet.DeprecatedFinalizerHostingAddOnPreDelete}, fleet.ConditionHookManifestCompleted, fleet.ReasonHookManifestIsNotCompleted},
	{[]string{fleet.FinalizerHostingManifestsCleanup, fleet.DeprecatedFinalizerHostingManifestsCleanup},
		fleet.ConditionHostingManifestApplied, fleet.ReasonAddOnManifestAppliedFailed},
}

// explainRemoval says of an add-on that is being deleted that no manager has started with that: it may not run, or be gone for good.
func (c *Controller) explainRemoval(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn) (ctrl.Result, error) {
	condition, ok := c.untouched(addOn)
	if !ok {
		return ctrl.Result{}, nil
	}
	if left := patience - c.clock.Since(addOn.DeletionTimestamp.Time); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	before := addOn.DeepCopy()
	meta.SetStatusCondition(&addOn.Status.Conditions, condition)
	_, err := patch.Status(ctx, c.client, addOn, before)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// untouched returns the condition of an add-on that its manager would have set since the deletion, if it has not. The message names all
// finalizers of the manager: they are taken off together, and the condition is not written again.
func (c *Controller) untouched(addOn *addonv1beta1.ManagedClusterAddOn) (condition metav1.Condition, ok bool) {
	var remaining []string
	for _, m := range ofManagers {
		reported := meta.FindStatusCondition(addOn.Status.Conditions, m.condition)
		if reported != nil && (reported.Status == metav1.ConditionFalse || !reported.LastTransitionTime.Before(addOn.DeletionTimestamp)) {
			return condition, false // the manager's word, or this controller's: neither is written over
		}
		for _, finalizer := range addOn.Finalizers {
			if !slices.Contains(m.finalizers, finalizer) {
				continue
			}
			if len(remaining) == 0 {
				condition.Type, condition.Reason = m.condition, m.reason
			}
			remaining = append(remaining, finalizer)
		}
	}
	condition.Status, condition.ObservedGeneration = metav1.ConditionFalse, addOn.Generation
	condition.LastTransitionTime = metav1.NewTime(c.clock.Now())
	condition.Message = fmt.Sprintf("The manager of the add-on has said nothing about its deletion: it has to take off the finalizers %s. "+
		"See whether it runs; if it is gone for good, take them off, and what it would have cleaned up stays: "+
		"kubectl edit managedclusteraddon -n %s %s", strings.Join(remaining, ", "), addOn.Namespace, addOn.Name)
	return condition, len(remaining) > 0
}
