package inprocess

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	rules "github.com/capstan-io/capstan/internal/admission"
)

var managedClusterAddOns = addonv1beta1.GroupVersion.WithResource("managedclusteraddons").GroupResource()

// addOnValidator checks ManagedClusterAddOns, and what agents write into their status.
type addOnValidator struct {
	*admission.Handler
	authorizing
}

var (
	_ admission.ValidationInterface            = (*addOnValidator)(nil)
	_ initializer.WantsUnconditionalAuthorizer = (*addOnValidator)(nil)
)

func newAddOnValidator(opts Options) *addOnValidator {
	return &addOnValidator{Handler: writes(), authorizing: newAuthorizing(opts)}
}

// Validate is called by the server.
func (p *addOnValidator) Validate(ctx context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	subresource := request.GetSubresource()
	if subresource != "" && subresource != "status" || request.GetResource().GroupResource() != managedClusterAddOns {
		return nil
	}
	addOn, ok := request.GetObject().(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("the object under admission is a %T, not unstructured", request.GetObject())
	}
	old, updated := request.GetOldObject().(*unstructured.Unstructured)
	sender := p.sender(request)
	switch {
	case subresource == "" && updated:
		return rules.ValidateManagedClusterAddOn(ctx, addOn, old, sender)
	case subresource == "":
		return rules.ValidateManagedClusterAddOn(ctx, addOn, nil, sender)
	}
	return rules.ValidateManagedClusterAddOnStatus(addOn, old, sender)
}
