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

// stateChanged leaves out changes of the status and of metadata. It compares what package addon/config compares: the definition of the
// kind may have changed what a configuration is without a new generation, or somebody has made it anew while nobody watched.
func stateChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*unstructured.Unstructured)
	after, too := e.ObjectNew.(*unstructured.Unstructured)
	if !ok || !too || before.GetUID() != after.GetUID() {
		return true
	}
	then, errThen := config.Hash(before)
	now, errNow := config.Hash(after)
	return errThen != nil || errNow != nil || then != now
}

// notCreated leaves out the works that the controller has just made.
func notCreated() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }}
}

// permissionChanged matches what happens to permissions that the controller has applied, until somebody takes the labels off.
func (c *Controller) permissionChanged() predicate.Predicate {
	return predicate.And(predicates.Either(c.applied), c.notNew())
}

// notNew leaves out the permissions that the controller has just made, but not those that it finds, nor those that come when their add-on
// is gone: that may have gone while they were made, and has not taken them along, for then they were not in the cache.
func (c *Controller) notNew() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool {
		if e.IsInInitialList {
			return true
		}
		// What the cache has will do, and waiting for what was written last would hold up all events: an add-on that has gone without the
		// cache knowing yet has an event of its own.
		return c.client.Get(context.Background(), keyOf(e.Object), &addonv1beta1.ManagedClusterAddOn{},
			client.DisableReadYourWritesConsistency) != nil
	}}
}

// foreign are conditions of an add-on that its manager neither sets nor needs.
var foreign = []string{
	fleet.ConditionProgressing, fleet.ConditionDegraded, fleet.ConditionCertificateRotated, fleet.ConditionTokenRefreshed,
}

// matters leaves out the changes of others that the controller has nothing to do with: reports of the agent, mostly.
func matters(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*addonv1beta1.ManagedClusterAddOn)
	after, too := e.ObjectNew.(*addonv1beta1.ManagedClusterAddOn)
	if !ok || !too || before.Generation != after.Generation || !before.DeletionTimestamp.Equal(after.DeletionTimestamp) {
		return true
	}
	return !equality.Semantic.DeepEqual(before.Annotations, after.Annotations) || !equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!slices.Equal(before.Finalizers, after.Finalizers) || !equality.Semantic.DeepEqual(stripped(before), stripped(after))
}

// stripped is what of the status may matter.
func stripped(addOn *addonv1beta1.ManagedClusterAddOn) addonv1beta1.ManagedClusterAddOnStatus {
	status := addOn.Status
	status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c metav1.Condition) bool {
		return slices.Contains(foreign, c.Type) ||
			c.Type == fleet.ConditionAvailable && addOn.Status.HealthCheck.Mode != addonv1beta1.HealthCheckModeCustomized
	})
	return status
}

// works tells whether an add-on is there and available, for others to build on.
func works(o client.Object) bool {
	addOn, ok := o.(*addonv1beta1.ManagedClusterAddOn)
	return ok && addOn.DeletionTimestamp.IsZero() && meta.IsStatusConditionTrue(addOn.Status.Conditions, fleet.ConditionAvailable)
}
