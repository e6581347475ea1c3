package retry

import (
	"context"
	"errors"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UntilAnswered sends a request until the API server answers it, be it with a refusal, or the context ends. Pauses are those of [Until].
func UntilAnswered[T any](ctx context.Context, request func(context.Context) (T, error)) (result T, err error) {
	ended := Until(ctx, func(ctx context.Context) (bool, error) {
		result, err = request(ctx)
		return !IsUnanswered(err), nil
	})
	if ended != nil {
		return result, ended
	}
	return result, err
}

// IsUnanswered reports whether an error says that an API server could not be asked, or could not answer. One that has too many requests has
// answered, and so has one that does not know a version that is asked for.
func IsUnanswered(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError && !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
	}
	var connection net.Error
	return errors.As(err, &connection)
}
