package installation

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// ours are the finalizers of add-ons that managers set, including those of older managers.
var ours = []string{
	fleet.FinalizerAddOnPreDelete, fleet.FinalizerHostingAddOnPreDelete, fleet.FinalizerHostingManifestsCleanup,
	fleet.DeprecatedFinalizerAddOnPreDelete, fleet.DeprecatedFinalizerHostingAddOnPreDelete, fleet.DeprecatedFinalizerHostingManifestsCleanup,
}

// addFinalizers adds the missing finalizers. An object that is being deleted cannot get new ones.
func (r *reconciliation) addFinalizers(ctx context.Context, finalizers []string) error {
	if !r.addOn.DeletionTimestamp.IsZero() {
		return nil
	}
	desired := r.before.DeepCopy()
	for _, f := range finalizers {
		if !slices.Contains(desired.Finalizers, f) {
			desired.Finalizers = append(desired.Finalizers, f)
		}
	}
	changed, err := patch.Object(ctx, r.client, desired, r.before)
	if !changed || err != nil {
		return err
	}
	r.before = desired
	r.addOn.Finalizers, r.addOn.ResourceVersion = slices.Clone(desired.Finalizers), desired.ResourceVersion
	return nil
}

// release removes those of our finalizers that the add-on no longer needs.
func (r *reconciliation) release(ctx context.Context) error {
	before := r.addOn.DeepCopy()
	r.addOn.Finalizers = slices.DeleteFunc(r.addOn.Finalizers, func(f string) bool {
		return slices.Contains(ours, f) && !slices.Contains(r.finalizers, f)
	})
	_, err := patch.Object(ctx, r.client, r.addOn, before)
	return client.IgnoreNotFound(err)
}
