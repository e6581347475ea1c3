package inprocess

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	rules "github.com/capstan-io/capstan/internal/admission"
)

var (
	replicaSets      = workv1alpha1.GroupVersion.WithResource("manifestworkreplicasets").GroupResource()
	managementAddOns = addonv1beta1.GroupVersion.WithResource("clustermanagementaddons").GroupResource()
)

// replicaSetValidator checks ManifestWorkReplicaSets.
type replicaSetValidator struct {
	*admission.Handler
	authorizing
	options rules.ManifestWorkOptions
}

var (
	_ admission.ValidationInterface            = (*replicaSetValidator)(nil)
	_ initializer.WantsUnconditionalAuthorizer = (*replicaSetValidator)(nil)
)

func newReplicaSetValidator(opts Options) *replicaSetValidator {
	return &replicaSetValidator{Handler: writes(), authorizing: newAuthorizing(opts), options: opts.ManifestWork}
}

// Validate is called by the server.
func (p *replicaSetValidator) Validate(ctx context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	// Some of what is checked is in annotations.
	if !isAbout(request, replicaSets) || keepsSpec(request) && keepsAnnotations(request) {
		return nil
	}
	set, old, err := decodeBoth[workv1alpha1.ManifestWorkReplicaSet](request)
	if err != nil {
		return err
	}
	if err := rules.ValidateManifestWorkReplicaSet(ctx, set, old, p.sender(request), p.options); err != nil {
		return err
	}
	warn(ctx, rules.ManifestWorkReplicaSetWarnings(set, old))
	return nil
}

// managementAddOnValidator checks ClusterManagementAddOns.
type managementAddOnValidator struct{ *admission.Handler }

var _ admission.ValidationInterface = (*managementAddOnValidator)(nil)

func newManagementAddOnValidator() *managementAddOnValidator {
	return &managementAddOnValidator{Handler: writes()}
}

// Validate is called by the server. The install strategy is the same in every version of the kind, so one type reads
// them all.
func (p *managementAddOnValidator) Validate(_ context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	// Some of what is checked is in annotations.
	if !isAbout(request, managementAddOns) || keepsSpec(request) && keepsAnnotations(request) {
		return nil
	}
	addOn, old, err := decodeBoth[addonv1beta1.ClusterManagementAddOn](request)
	if err != nil {
		return err
	}
	return rules.ValidateClusterManagementAddOn(addOn, old)
}
