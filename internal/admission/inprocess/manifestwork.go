package inprocess

import (
	"context"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	rules "github.com/capstan-io/capstan/internal/admission"
)

var manifestWorks = workv1.GroupVersion.WithResource("manifestworks").GroupResource()

// workValidator checks ManifestWorks (WH-10, WH-11).
type workValidator struct {
	*admission.Handler
	asking
	options rules.ManifestWorkOptions
}

var (
	_ admission.ValidationInterface            = (*workValidator)(nil)
	_ initializer.WantsUnconditionalAuthorizer = (*workValidator)(nil)
)

func newWorkValidator(options rules.ManifestWorkOptions) *workValidator {
	return &workValidator{Handler: writes(), options: options}
}

// Validate is called by the server.
func (p *workValidator) Validate(ctx context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isAbout(request, manifestWorks) || keepsSpec(request) {
		return nil
	}
	work, old, err := decodeBoth[workv1.ManifestWork](request)
	if err != nil {
		return err
	}
	return rules.ValidateManifestWork(ctx, work, old, p.sender(request.GetUserInfo()), p.options)
}

// keepsSpec says whether an update leaves the spec alone, as adding labels and finalizers does. The rules would let it
// pass; this saves decoding what may be a megabyte, twice.
func keepsSpec(request admission.Attributes) bool {
	if request.GetOperation() != admission.Update {
		return false
	}
	object, ok := request.GetObject().(*unstructured.Unstructured)
	old, oldOK := request.GetOldObject().(*unstructured.Unstructured)
	return ok && oldOK && reflect.DeepEqual(object.Object["spec"], old.Object["spec"])
}

// keepsAnnotations says whether an update leaves the annotations alone.
func keepsAnnotations(request admission.Attributes) bool {
	object, ok := request.GetObject().(*unstructured.Unstructured)
	old, oldOK := request.GetOldObject().(*unstructured.Unstructured)
	return ok && oldOK && maps.Equal(object.GetAnnotations(), old.GetAnnotations())
}
