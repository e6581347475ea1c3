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

// hold adds the missing finalizers. An object that is being deleted cannot get new ones.
func (p *pass) hold(ctx context.Context, finalizers []string) error {
	if !p.addOn.DeletionTimestamp.IsZero() {
		return nil
	}
	held := p.before.DeepCopy()
	for _, f := range finalizers {
		if !slices.Contains(held.Finalizers, f) {
			held.Finalizers = append(held.Finalizers, f)
		}
	}
	changed, err := patch.Object(ctx, p.client, held, p.before)
	if !changed || err != nil {
		return err
	}
	p.before = held
	p.addOn.Finalizers, p.addOn.ResourceVersion = slices.Clone(held.Finalizers), held.ResourceVersion
	return nil
}

// release removes those of our finalizers that the add-on no longer needs.
func (p *pass) release(ctx context.Context) error {
	before := p.addOn.DeepCopy()
	p.addOn.Finalizers = slices.DeleteFunc(p.addOn.Finalizers, func(f string) bool {
		return slices.Contains(ours, f) && !slices.Contains(p.finalizers, f)
	})
	_, err := patch.Object(ctx, p.client, p.addOn, before)
	return client.IgnoreNotFound(err)
}
