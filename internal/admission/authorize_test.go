package admission_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capstan-io/capstan/internal/admission"
)

// fakeAuthorizer allows what it lists, and remembers the reviews. Permissions are written by permission.
type fakeAuthorizer struct {
	allowed  []string
	err      error
	reviewed []string
}

func permission(a authorizationv1.ResourceAttributes) string {
	return fmt.Sprintf("%s %s/%s.%s %s/%s", a.Verb, a.Resource, a.Subresource, a.Group, a.Namespace, a.Name)
}

func (f *fakeAuthorizer) sender() admission.Sender {
	return admission.Sender{Name: "ann", Authorize: func(_ context.Context, a authorizationv1.ResourceAttributes) (bool, string, error) {
		f.reviewed = append(f.reviewed, permission(a))
		for _, allowed := range f.allowed {
			if allowed == permission(a) {
				return true, "", f.err
			}
		}
		return false, "no rule allows it", f.err
	}}
}

// checkStatus compares an error with the status code, 0 for none, and the texts its message must have.
func checkStatus(t *testing.T, err error, code int, texts ...string) {
	t.Helper()
	if code == 0 {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("got %v, want an API error with status %d", err, code)
	}
	if got := int(status.Status().Code); got != code {
		t.Errorf("status is %d, want %d: %v", got, code, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("message is %q, want it to contain %q", err, text)
		}
	}
}
