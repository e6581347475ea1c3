// Package template runs the add-ons that have no code of their own but an AddOnTemplate (AM-30 to AM-38): it says which these
// are, and what each of them consists of. The machinery is the one that all add-ons share.
package template

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/addon/catalogue"
)

// Templates is the type of AddOnTemplates.
var Templates = addonv1beta1.GroupVersion.WithResource("addontemplates")

// indexTemplated of ManagedClusterAddOns is their name, if they are of a template.
const indexTemplated = "template.templated"

// Catalogue has the add-ons of AddOnTemplates: those whose ClusterManagementAddOn names the type among its configurations
// (AM-30).
type Catalogue struct {
	client client.Client
	// uncached reads the secrets of certification authorities, which no cache of the hub is to hold.
	uncached client.Reader
	// told are the variables without a value that the log has told of.
	told sync.Map
}

var _ catalogue.Catalogue = (*Catalogue)(nil)

// NewCatalogue returns a Catalogue. Its client reads from a cache that has the index of IndexAddOns, also what is unstructured; uncached
// asks the API server.
func NewCatalogue(c client.Client, uncached client.Reader) *Catalogue {
	return &Catalogue{client: c, uncached: uncached}
}

// IndexAddOns adds the index that the Catalogue needs.
func IndexAddOns(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &addonv1beta1.ManagedClusterAddOn{}, indexTemplated, func(o client.Object) []string {
		if addOn, ok := o.(*addonv1beta1.ManagedClusterAddOn); ok && isInstalledTemplate(addOn) {
			return []string{addOn.Name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index the add-ons of templates: %w", err)
	}
	return nil
}

// Agent is the add-on of the name, or nil if it is not one of a template.
func (c *Catalogue) Agent(ctx context.Context, name string) (addon.Agent, error) {
	is, err := c.isTemplate(ctx, name)
	if err != nil || !is {
		return nil, err
	}
	return &agent{Catalogue: c, name: name}, nil
}

func (c *Catalogue) isTemplate(ctx context.Context, name string) (bool, error) {
	entry := &addonv1beta1.ClusterManagementAddOn{}
	err := c.client.Get(ctx, client.ObjectKey{Name: name}, entry)
	if err == nil {
		return slices.ContainsFunc(entry.Spec.DefaultConfigs, func(config addonv1beta1.AddOnConfig) bool {
			return isTemplateType(config.ConfigGroupResource)
		}), nil
	}
	if !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("get ClusterManagementAddOn %s: %w", name, err)
	}
	// It goes before what is installed of it (gap A5), and somebody has to see that through.
	installed := &addonv1beta1.ManagedClusterAddOnList{}
	if err := c.client.List(ctx, installed, client.MatchingFields{indexTemplated: name}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list the ManagedClusterAddOns %s: %w", name, err)
	}
	return len(installed.Items) > 0, nil
}

// isInstalledTemplate tells whether the hub has installed an add-on from a template.
func isInstalledTemplate(addOn *addonv1beta1.ManagedClusterAddOn) bool {
	return slices.ContainsFunc(addOn.Status.SupportedConfigs, isTemplateType) ||
		slices.ContainsFunc(addOn.Status.ConfigReferences, func(reference addonv1beta1.ConfigReference) bool {
			return isTemplateType(reference.ConfigGroupResource)
		})
}

func isTemplateType(config addonv1beta1.ConfigGroupResource) bool {
	return config.Group == Templates.Group && config.Resource == Templates.Resource
}
