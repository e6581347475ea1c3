package installation

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
)

// stateChanged matches changes of the content, not of status and metadata. It compares what package addon/config compares: a new
// definition of the kind can change the content without a new generation, and an object that was deleted and created again while the
// watch was interrupted arrives as an update. A new generation is a change even where this version of the object does not show it.
func stateChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*unstructured.Unstructured)
	after, too := e.ObjectNew.(*unstructured.Unstructured)
	if !ok || !too || before.GetUID() != after.GetUID() || before.GetGeneration() != after.GetGeneration() {
		return true
	}
	then, errThen := config.Hash(before)
	now, errNow := config.Hash(after)
	return errThen != nil || errNow != nil || then != now
}

// notCreated ignores the creation of works, which this controller creates itself.
func notCreated() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }}
}

// permissionChanged matches changes of permissions that the controller has applied, including the removal of their labels.
func (c *Controller) permissionChanged() predicate.Predicate {
	return predicate.And(predicates.Either(c.applied), c.notNew())
}

// notNew ignores the creation of permissions, which this controller creates itself. It does not ignore those that exist when the watch
// starts, and those whose add-on is gone: the add-on may have been deleted before its new permissions were in the cache, so that its
// cleanup did not find them.
func (c *Controller) notNew() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool {
		if e.IsInInitialList {
			return true
		}
		// A read of the cache as it is suffices, and one that waits for the latest write would block all events: an add-on that is deleted
		// later has an event of its own.
		return c.client.Get(context.Background(), keyOf(e.Object), &addonv1beta1.ManagedClusterAddOn{},
			client.DisableReadYourWritesConsistency) != nil
	}}
}

// foreign are conditions of an add-on that its manager neither sets nor reads.
var foreign = []string{
	fleet.ConditionProgressing, fleet.ConditionDegraded, fleet.ConditionCertificateRotated, fleet.ConditionTokenRefreshed,
}

// matters ignores changes that do not affect this controller, mostly reports of the agent.
func matters(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*addonv1beta1.ManagedClusterAddOn)
	after, too := e.ObjectNew.(*addonv1beta1.ManagedClusterAddOn)
	if !ok || !too || before.Generation != after.Generation || !before.DeletionTimestamp.Equal(after.DeletionTimestamp) {
		return true
	}
	return !equality.Semantic.DeepEqual(before.Annotations, after.Annotations) || !equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!slices.Equal(before.Finalizers, after.Finalizers) || !equality.Semantic.DeepEqual(stripped(before), stripped(after))
}

// stripped returns the part of the status that affects this controller.
func stripped(addOn *addonv1beta1.ManagedClusterAddOn) addonv1beta1.ManagedClusterAddOnStatus {
	status := addOn.Status
	status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c metav1.Condition) bool {
		return slices.Contains(foreign, c.Type) ||
			c.Type == fleet.ConditionAvailable && addOn.Status.HealthCheck.Mode != addonv1beta1.HealthCheckModeCustomized
	})
	return status
}

// works reports whether an add-on exists and is available, so that add-ons that depend on it can be deployed.
func works(o client.Object) bool {
	addOn, ok := o.(*addonv1beta1.ManagedClusterAddOn)
	return ok && addOn.DeletionTimestamp.IsZero() && meta.IsStatusConditionTrue(addOn.Status.Conditions, fleet.ConditionAvailable)
}
