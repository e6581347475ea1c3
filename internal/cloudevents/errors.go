package cloudevents

import (
	"encoding/json"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errorMessage is the message of a gRPC status that carries an error of the API. Some clients read an API status from it, others an error
// that has one in the field ErrStatus, so it is both.
type errorMessage struct {
	metav1.Status
	ErrStatus *metav1.Status `json:"ErrStatus,omitempty"`
}

// ErrTooLarge says that a transport cannot carry an event, however often it is sent.
var ErrTooLarge = errors.New("the event is too large")

// PublishError returns the error of gRPC that tells a client what the API of the hub has said, so that the client knows a conflict from an
// absent resource. An error of another origin is an internal one of the API to the client.
func PublishError(err error) error {
	var apiStatus apierrors.APIStatus
	if !errors.As(err, &apiStatus) {
		apiStatus = apierrors.NewInternalError(err)
	}
	answer := apiStatus.Status()
	if answer.Kind == "" {
		answer.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	}
	message, marshalErr := json.Marshal(errorMessage{Status: answer, ErrStatus: &answer})
	if marshalErr != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return status.Error(codes.FailedPrecondition, string(message))
}

// APIError returns the error of the API that a hub made a gRPC error of, for [apierrors.IsConflict] and its like. It returns any other
// error as it is.
func APIError(err error) error {
	answer, ok := status.FromError(err)
	if !ok || answer.Code() != codes.FailedPrecondition {
		return err
	}
	message := errorMessage{}
	if json.Unmarshal([]byte(answer.Message()), &message) != nil {
		return err
	}
	if message.ErrStatus != nil {
		message.Status = *message.ErrStatus
	}
	if message.Status.Status != metav1.StatusFailure {
		return err
	}
	return &apierrors.StatusError{ErrStatus: message.Status}
}
