package retry

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// patience is how long a request is repeated. Then who sends it learns what is wrong: a cache logs that, and begins anew.
const patience = 5 * time.Minute

// UntilAnswered sends a request until the API server answers it, be it with a refusal, the context ends, or five minutes have passed.
// Pauses are those of [Until].
func UntilAnswered[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	return repeat(ctx, isUnanswered, request)
}

// UntilReached is [UntilAnswered] for a request in whose place there is another one if the API server fails to answer it, such as a list in
// that of a watch.
func UntilReached[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	return repeat(ctx, IsUnreached, request)
}

func repeat[T any](ctx context.Context, again func(error) bool, request func(context.Context) (T, error)) (result T, err error) {
	start := time.Now()
	ended := Until(ctx, func(ctx context.Context) (bool, error) {
		result, err = request(ctx)
		return !again(err) || time.Since(start) >= patience, nil
	})
	if ended != nil {
		return result, ended
	}
	return result, err
}

// isUnanswered reports whether an error says that an API server could not be asked, or could not answer. One that has too many requests has
// answered, and so has one that does not know a version that is asked for.
func isUnanswered(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError && !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
	}
	return IsUnreached(err)
}

// IsUnreached reports whether an error says that there was no answer at all.
func IsUnreached(err error) bool {
	var connection net.Error
	return errors.As(err, &connection)
}
