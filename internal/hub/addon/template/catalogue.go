// Package template runs the add-ons that have no code of their own but an AddOnTemplate: it says which these
// are, and what each of them consists of. The machinery is the one that all add-ons share.
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
	// uncached reads the secrets of certification authorities, which no cache of the hub is to hold.
	uncached client.Reader
	recorder events.EventRecorder
	// told is what events have said of each ManagedClusterAddOn, for nothing to be said twice: a told for each name.
	told sync.Map
}

// NewCatalogue returns a Catalogue. Its client reads from a cache, also what is unstructured; uncached asks the API server.
func NewCatalogue(c client.Client, uncached client.Reader, recorder events.EventRecorder) *Catalogue {
	return &Catalogue{client: c, uncached: uncached, recorder: recorder}
}

// Agent is the code of an add-on, or nil if it is not one of a template.
func (c *Catalogue) Agent(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn) (addon.Agent, error) {
	is, err := c.isTemplate(ctx, addOn)
	if err != nil || !is {
		return nil, err
	}
	return &agent{Catalogue: c, name: addOn.Name}, nil
}

// isTemplate tells whether an add-on is one of a template: by its entry in the catalogue, or, where that does not say so any more, because
// it has been one and somebody has to see its removal through.
func (c *Catalogue) isTemplate(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn) (bool, error) {
	entry := &addonv1beta1.ClusterManagementAddOn{}
	err := c.client.Get(ctx, client.ObjectKey{Name: addOn.Name}, entry)
	switch {
	case apierrors.IsNotFound(err): // It goes before what is installed of it.
		return slices.ContainsFunc(addOn.Status.SupportedConfigs, isTemplateType) || refersToTemplate(addOn), nil
	case err != nil:
		return false, fmt.Errorf("get ClusterManagementAddOn %s: %w", addOn.Name, err)
	case slices.ContainsFunc(entry.Spec.DefaultConfigs,
		func(config addonv1beta1.AddOnConfig) bool { return isTemplateType(config.ConfigGroupResource) }):
		return true, nil
	default: // Whoever else has taken charge of it since then has written what it supports.
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
