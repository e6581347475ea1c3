package cloudevents

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GR-10: a client gets the error of the API back, from a gRPC error with the code FailedPrecondition.
func TestErrors(t *testing.T) {
	t.Parallel()
	works := schema.GroupResource{Group: "work.open-cluster-management.io", Resource: "manifestworks"}
	sent := PublishError(fmt.Errorf("patch: %w", apierrors.NewConflict(works, "w", errors.New("it has changed"))))
	if status.Code(sent) != codes.FailedPrecondition {
		t.Errorf("the code is %s", status.Code(sent))
	}
	if got := APIError(sent); !apierrors.IsConflict(got) {
		t.Errorf("got %v, want a conflict", got)
	}
	if got := APIError(PublishError(errors.New("broken"))); !apierrors.IsInternalError(got) {
		t.Errorf("got %v, want an internal error", got)
	}
}

// GR-10: the message is read as a status of the API, and as an error that has one.
func TestErrorMessage(t *testing.T) {
	t.Parallel()
	answer, _ := status.FromError(PublishError(apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "l")))
	asStatus, asError := metav1.Status{}, apierrors.StatusError{}
	if err := json.Unmarshal([]byte(answer.Message()), &asStatus); err != nil || asStatus.Reason != metav1.StatusReasonNotFound {
		t.Errorf("as status: %+v, %v", asStatus, err)
	}
	if err := json.Unmarshal([]byte(answer.Message()), &asError); err != nil || asError.ErrStatus.Reason != metav1.StatusReasonNotFound {
		t.Errorf("as error: %+v, %v", asError, err)
	}
	for _, message := range []string{
		`{"kind":"Status","status":"Failure","reason":"NotFound"}`,
		`{"ErrStatus":{"status":"Failure","reason":"NotFound"}}`,
	} {
		if got := APIError(status.Error(codes.FailedPrecondition, message)); !apierrors.IsNotFound(got) {
			t.Errorf("%s is read as %v", message, got)
		}
	}
}

// GR-10: errors of gRPC itself stay what they are.
func TestOtherErrors(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errors.New("x"), status.Error(codes.PermissionDenied, "no"),
		status.Error(codes.FailedPrecondition, "text"), status.Error(codes.FailedPrecondition, "{}")} {
		if got := APIError(err); !errors.Is(got, err) {
			t.Errorf("%v is read as %v", err, got)
		}
	}
}
