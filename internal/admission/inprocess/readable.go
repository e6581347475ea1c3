package inprocess

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"

	rules "github.com/capstan-io/capstan/internal/admission"
)

// typeValidator refuses objects that clients, including the hub's own controllers, could not read. Unlike the other plugins it checks
// the status, too: an agent writes the status of its cluster, and must not be able to stop the whole hub.
type typeValidator struct{ *admission.Handler }

var _ admission.ValidationInterface = (*typeValidator)(nil)

func newTypeValidator() *typeValidator { return &typeValidator{Handler: writes()} }

// Validate is called by the server.
func (p *typeValidator) Validate(_ context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	object, ok := request.GetObject().(*unstructured.Unstructured)
	if !ok {
		return nil // a kind of Kubernetes itself, which the server has decoded
	}
	old, _ := request.GetOldObject().(*unstructured.Unstructured)
	return rules.ValidateReadable(object, old, request.GetSubresource())
}
