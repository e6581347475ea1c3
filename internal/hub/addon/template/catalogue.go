// Package template runs the add-ons with an AddOnTemplate instead of code of their own. It has their Catalogue and their Agent; package
// addon/engine does the rest, as for all add-ons.
package template

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// Templates is the type of AddOnTemplates.
var Templates = addonv1beta1.GroupVersion.WithResource("addontemplates")

// Catalogue has the add-ons of AddOnTemplates: those whose ClusterManagementAddOn names the type among its configurations.
type Catalogue struct {
	client client.Client
	// uncached reads the Secrets of certification authorities, which no cache of the hub should hold.
	uncached client.Reader
	recorder events.EventRecorder
	// reported has a value of type reported for each name of a ManagedClusterAddOn, so that no event is repeated.
	reported sync.Map
}

// NewCatalogue returns a Catalogue. Its client reads from a cache, including unstructured objects; uncached reads from the API server.
func NewCatalogue(c client.Client, uncached client.Reader, recorder events.EventRecorder) *Catalogue {
	return &Catalogue{client: c, uncached: uncached, recorder: recorder}
}

// Agent returns the code of an add-on with a template, and nil for other add-ons.
func (c *Catalogue) Agent(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn) (addon.Agent, error) {
	is, err := c.isTemplate(ctx, addOn)
	if err != nil || !is {
		return nil, err
	}
	return &agent{Catalogue: c, name: addOn.Name}, nil
}

// isTemplate reports whether an add-on has a template: its ClusterManagementAddOn says so, or it had one and is being removed.
func (c *Catalogue) isTemplate(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn) (bool, error) {
	entry := &addonv1beta1.ClusterManagementAddOn{}
	err := c.client.Get(ctx, client.ObjectKey{Name: addOn.Name}, entry)
	switch {
	case apierrors.IsNotFound(err): // it is deleted before the add-ons that it owns
		return slices.ContainsFunc(addOn.Status.SupportedConfigs, isTemplateType) || refersToTemplate(addOn), nil
	case err != nil:
		return false, fmt.Errorf("get ClusterManagementAddOn %s: %w", addOn.Name, err)
	case slices.ContainsFunc(entry.Spec.DefaultConfigs,
		func(config addonv1beta1.AddOnConfig) bool { return isTemplateType(config.ConfigGroupResource) }):
		return true, nil
	default: // another manager that has taken it over has listed what it supports
		return isLeaving(addOn) && slices.ContainsFunc(addOn.Status.SupportedConfigs, isTemplateType), nil
	}
}

func refersToTemplate(addOn *addonv1beta1.ManagedClusterAddOn) bool {
	return slices.ContainsFunc(addOn.Status.ConfigReferences, func(reference addonv1beta1.ConfigReference) bool {
		return isTemplateType(reference.ConfigGroupResource)
	})
}

func isTemplateType(config addonv1beta1.ConfigGroupResource) bool {
	return config.Group == Templates.Group && config.Resource == Templates.Resource
}
