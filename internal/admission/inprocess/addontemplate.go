package inprocess

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	rules "github.com/capstan-io/capstan/internal/admission"
)

var addOnTemplates = addonv1beta1.GroupVersion.WithResource("addontemplates").GroupResource()

// templateValidator checks AddOnTemplates.
type templateValidator struct {
	*admission.Handler
	authorizing
	options rules.ManifestWorkOptions
}

var (
	_ admission.ValidationInterface            = (*templateValidator)(nil)
	_ initializer.WantsUnconditionalAuthorizer = (*templateValidator)(nil)
)

func newTemplateValidator(opts Options) *templateValidator {
	return &templateValidator{Handler: writes(), authorizing: newAuthorizing(opts), options: opts.ManifestWork}
}

// Validate is called by the server. A template is the same in every version of the kind, so one type reads them all.
func (p *templateValidator) Validate(ctx context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isAbout(request, addOnTemplates) || keepsSpec(request) {
		return nil
	}
	template, old, err := decodeBoth[addonv1beta1.AddOnTemplate](request)
	if err != nil {
		return err
	}
	return rules.ValidateAddOnTemplate(ctx, template, old, p.sender(request), p.options)
}
