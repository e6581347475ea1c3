package inprocess

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	rules "github.com/capstan-io/capstan/internal/admission"
	"github.com/capstan-io/capstan/internal/fleet"
)

var managedClusterAddOns = addonv1beta1.GroupVersion.WithResource("managedclusteraddons").GroupResource()

// addOnStatusValidator checks what agents write into the status of ManagedClusterAddOns (R10).
type addOnStatusValidator struct{ *admission.Handler }

var _ admission.ValidationInterface = (*addOnStatusValidator)(nil)

func newAddOnStatusValidator() *addOnStatusValidator { return &addOnStatusValidator{Handler: writes()} }

// Validate is called by the server.
func (p *addOnStatusValidator) Validate(_ context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	if request.GetSubresource() != "status" || request.GetResource().GroupResource() != managedClusterAddOns {
		return nil
	}
	addOn, ok := request.GetObject().(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("the object under admission is a %T, not unstructured", request.GetObject())
	}
	old, _ := request.GetOldObject().(*unstructured.Unstructured)
	who := request.GetUserInfo()
	return rules.ValidateManagedClusterAddOnStatus(addOn, old, rules.Sender{Name: who.GetName(), Clusters: fleet.AgentClusters(who.GetGroups())})
}
