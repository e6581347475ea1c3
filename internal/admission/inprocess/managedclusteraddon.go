package inprocess

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/kubernetes"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	rules "github.com/capstan-io/capstan/internal/admission"
)

var managedClusterAddOns = addonv1beta1.GroupVersion.WithResource("managedclusteraddons").GroupResource()

// addOnValidator checks ManagedClusterAddOns, and what agents write into their status.
type addOnValidator struct {
	*admission.Handler
	authorizing
	client kubernetes.Interface
}

var (
	_ admission.ValidationInterface            = (*addOnValidator)(nil)
	_ initializer.WantsUnconditionalAuthorizer = (*addOnValidator)(nil)
	_ initializer.WantsExternalKubeClientSet   = (*addOnValidator)(nil)
)

func newAddOnValidator(opts Options) *addOnValidator {
	return &addOnValidator{Handler: writes(), authorizing: newAuthorizing(opts)}
}

// SetExternalKubeClientSet is called by the server.
func (p *addOnValidator) SetExternalKubeClientSet(client kubernetes.Interface) {
	p.client = client
}

// ValidateInitialization is called by the server before the first request.
func (p *addOnValidator) ValidateInitialization() error {
	if p.client == nil {
		return errors.New("the plugin needs a client to read add-ons: add an initializer that sets it")
	}
	return p.authorizing.ValidateInitialization()
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
	sender := p.sender(request)
	if subresource == "status" {
		old, _ := request.GetOldObject().(*unstructured.Unstructured)
		return rules.ValidateManagedClusterAddOnStatus(addOn, old, sender)
	}
	old, err := replaced(request)
	if err != nil {
		return err
	}
	if err := rules.ValidateManagedClusterAddOn(ctx, addOn, old, sender); err != nil || keepsSpec(request) {
		return err
	}
	return p.validateConfigs(ctx, request, sender)
}

// validateConfigs checks the configurations, which are the same in every version.
func (p *addOnValidator) validateConfigs(ctx context.Context, request admission.Attributes, sender rules.Sender) error {
	addOn, old, err := decodeBoth[addonv1beta1.ManagedClusterAddOn](request)
	if err != nil {
		return err
	}
	return rules.ValidateManagedClusterAddOnConfigs(ctx, addOn, old, sender, rules.AddOnReader{
		ManagementAddOn: func(ctx context.Context, name string) (*addonv1beta1.ClusterManagementAddOn, error) {
			entry := &addonv1beta1.ClusterManagementAddOn{}
			return entry, p.read(ctx, managementAddOns.Resource, name, entry)
		},
		Template: func(ctx context.Context, name string) (*addonv1beta1.AddOnTemplate, error) {
			template := &addonv1beta1.AddOnTemplate{}
			return template, p.read(ctx, addOnTemplates.Resource, name, template)
		},
	})
}

// read reads an object of the group of add-ons, not from a cache: what it grants may just have changed.
func (p *addOnValidator) read(ctx context.Context, resource, name string, into any) error {
	version := addonv1beta1.GroupVersion
	raw, err := p.client.CoreV1().RESTClient().Get().AbsPath("/apis", version.Group, version.Version, resource).Name(name).
		SetHeader("Accept", runtime.ContentTypeJSON).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
