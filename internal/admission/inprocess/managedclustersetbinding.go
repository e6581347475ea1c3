package inprocess

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	rules "github.com/capstan-io/capstan/internal/admission"
)

var setBindings = clusterv1beta2.GroupVersion.WithResource("managedclustersetbindings").GroupResource()

// bindingValidator checks ManagedClusterSetBindings.
type bindingValidator struct {
	*admission.Handler
	authorizing
}

var (
	_ admission.ValidationInterface            = (*bindingValidator)(nil)
	_ initializer.WantsUnconditionalAuthorizer = (*bindingValidator)(nil)
)

func newBindingValidator(opts Options) *bindingValidator {
	return &bindingValidator{Handler: writes(), authorizing: newAuthorizing(opts)}
}

// Validate is called by the server.
func (p *bindingValidator) Validate(ctx context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isAbout(request, setBindings) {
		return nil
	}
	binding, old, err := decodeBoth[clusterv1beta2.ManagedClusterSetBinding](request)
	if err != nil {
		return err
	}
	return rules.ValidateManagedClusterSetBinding(ctx, binding, old, p.sender(request))
}
