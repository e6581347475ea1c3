package hubclient

import (
	"context"
	"errors"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// answering has a cache list once the hub answers again after an outage. Without it, a cache is behind for up to two minutes: its pauses
// grow to a minute, and it takes two of them, because a hub that has started anew refuses to go on from the version that the cache has. One
// that was restored from a backup might not even know that version, and never send anything.
type answering struct {
	toolscache.ListerWatcherWithContext
}

// ListWithContext implements cache.ListerWithContext.
func (a answering) ListWithContext(ctx context.Context, options metav1.ListOptions) (list runtime.Object, err error) {
	ended := retry.Until(ctx, func(ctx context.Context) (bool, error) {
		list, err = a.ListerWatcherWithContext.ListWithContext(ctx, options)
		return !unanswered(err), nil
	})
	if ended != nil {
		return nil, ended
	}
	return list, err
}

// WatchWithContext implements cache.WatcherWithContext.
func (a answering) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	watching, err := a.ListerWatcherWithContext.WatchWithContext(ctx, options)
	if unanswered(err) {
		return nil, apierrors.NewResourceExpired("the hub was away: " + err.Error())
	}
	return watching, err
}

// unanswered reports whether a hub could not be asked, or could not answer. One that has too many requests has answered: pauses grow.
func unanswered(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError
	}
	var connection net.Error
	return errors.As(err, &connection)
}
