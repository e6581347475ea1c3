package webhook

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// warner is a plugin that warns, and refuses if it has an error.
type warner struct {
	text string
	err  error
}

func (warner) Handles(admission.Operation) bool { return true }

func (w warner) Validate(ctx context.Context, _ admission.Attributes, _ admission.ObjectInterfaces) error {
	warning.AddWarning(ctx, "", w.text)
	return w.err
}

// WK-01: what a plugin warns of reaches the client through the webhook, as it does in the API server.
func TestWarnings(t *testing.T) {
	t.Parallel()
	response := validator{warner{text: "one"}, warner{text: "two"}}.Handle(t.Context(), ctrladmission.Request{})
	if !response.Allowed || !slices.Equal(response.Warnings, []string{"one", "two"}) {
		t.Errorf("got %+v", response.AdmissionResponse)
	}
	if response := (validator{warner{err: errors.New("no")}}).Handle(t.Context(), ctrladmission.Request{}); response.Allowed {
		t.Errorf("a refusal: %+v", response.AdmissionResponse)
	}
}
