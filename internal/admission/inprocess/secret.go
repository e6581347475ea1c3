package inprocess

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	rules "github.com/capstan-io/capstan/internal/admission"
)

var secrets = corev1.Resource("secrets")

// secretValidator bounds which Secrets agents write.
type secretValidator struct {
	*admission.Handler
	identifying
}

var _ admission.ValidationInterface = (*secretValidator)(nil)

func newSecretValidator(opts Options) *secretValidator {
	return &secretValidator{writes(), newIdentifying(opts)}
}

// Validate is called by the server.
func (p *secretValidator) Validate(_ context.Context, request admission.Attributes, server admission.ObjectInterfaces) error {
	sender := p.identify(request)
	if !isAbout(request, secrets) || len(sender.Clusters) == 0 {
		return nil
	}
	secret, err := decodeSecret(request.GetObject(), server)
	if err != nil {
		return err
	}
	var old *corev1.Secret
	if request.GetOperation() == admission.Update {
		if old, err = decodeSecret(request.GetOldObject(), server); err != nil {
			return err
		}
	}
	return rules.ValidateSecret(secret, old, sender)
}

// decodeSecret reads a Secret, which a webhook has as it was sent, and an API server in its internal version.
func decodeSecret(object runtime.Object, server admission.ObjectInterfaces) (*corev1.Secret, error) {
	if _, sent := object.(*unstructured.Unstructured); sent {
		return decode[corev1.Secret](object)
	}
	secret := &corev1.Secret{}
	if err := server.GetObjectConvertor().Convert(object, secret, nil); err != nil {
		return nil, fmt.Errorf("read a Secret: %w", err)
	}
	return secret, nil
}
