package tracker

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// maxRefusals is how often in a row the API server may refuse a kind until what is known of it is taken for out of date. One that
// starts may refuse what it grants a moment later.
const maxRefusals = 3

// source is where the reflector of a kind has the objects from.
type source struct {
	kind   *kind
	client metadata.ResourceInterface
	// failed reports whether the last attempt to watch failed, without a list since.
	failed bool
}

// list waits until an API server that is away answers, and watch until it is reached: the pauses of a reflector grow to a minute. What
// could not be watched for another reason is listed again.
func (s *source) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := retry.UntilAnswered(ctx, func(ctx context.Context) (*metav1.PartialObjectMetadataList, error) {
		return s.client.List(ctx, o)
	})
	if err != nil {
		s.kind.countRefusal(err)
		return nil, err
	}
	s.failed = false
	return list, nil
}

func (s *source) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := retry.UntilReached(ctx, func(ctx context.Context) (watch.Interface, error) {
		w, err := s.tryWatch(ctx, o)
		s.failed = err != nil
		return w, err
	})
	if err != nil {
		if o.SendInitialEvents == nil { // of an attempt to have a watch instead of a list, the list that follows decides
			s.kind.countRefusal(err)
		}
		return nil, err
	}
	s.kind.watched()
	return w, nil
}

// tryWatch checks whether an API server that was away still has the resource version. If its cluster was restored from a backup, a watch
// would wait without an event for a version that is far off; a list fails, and the reflector starts over.
func (s *source) tryWatch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if s.failed && o.ResourceVersion != "" && o.SendInitialEvents == nil {
		_, err := s.client.List(ctx,
			metav1.ListOptions{ResourceVersion: o.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, Limit: 1})
		if err != nil {
			return nil, err
		}
	}
	return s.client.Watch(ctx, o)
}

// IsUnserved reports whether an error says that the API server does not serve a resource, rather than that an object does not exist.
func IsUnserved(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// countRefusal counts refusals. When they make what is known doubtful, the owners are notified, once: there will be no events to go by.
func (k *kind) countRefusal(err error) {
	if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return
	}
	k.tracker.mu.Lock()
	defer k.tracker.mu.Unlock()
	if k.refused++; k.refused != maxRefusals || !k.synced {
		return
	}
	for name, tracked := range k.objects {
		k.notifyOwners(name, tracked)
	}
}

// watched notes that there is a watch. That there is a list is not enough.
func (k *kind) watched() {
	k.tracker.mu.Lock()
	defer k.tracker.mu.Unlock()
	k.refused = 0
}
