package hubapi

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// watched is what to watch: one object by its name, or all that carry a label.
type watched struct {
	client    rest.Interface
	resource  string
	namespace string
	name      string
	label     labels.Set
}

func (w watched) narrow(options *metav1.ListOptions) {
	if w.name != "" {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()
	}
	if len(w.label) > 0 {
		options.LabelSelector = w.label.String()
	}
}

// until watches until wanted returns true for an object that exists. Lost connections are made again; what the hub
// refuses (permissions, an unknown kind) is an error at once.
func until[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, w watched, wanted func(P) bool) error {
	err := w.probe(ctx)
	if err == nil {
		err = follow(ctx, w, wanted)
	}
	if err != nil && ctx.Err() != nil {
		return errWaitEnded{context.Cause(ctx)}
	}
	return err
}

func follow[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, w watched, wanted func(P) bool) error {
	source := cache.NewFilteredListWatchFromClient(w.client, w.resource, w.namespace, w.narrow)
	_, err := watchtools.UntilWithSync(ctx, source, P(new(T)), nil, func(event watch.Event) (bool, error) {
		object, ok := event.Object.(P)
		if !ok {
			return false, fmt.Errorf("watch sent a %T", event.Object)
		}
		return event.Type != watch.Deleted && wanted(object), nil
	})
	return err
}

// untilNone watches until there is no object left that counts, and fails like until.
func untilNone[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, w watched, counts func(P) bool) error {
	err := w.probe(ctx)
	if err == nil {
		err = followNone(ctx, w, counts)
	}
	if err != nil && ctx.Err() != nil {
		return errWaitEnded{context.Cause(ctx)}
	}
	return err
}

func followNone[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, w watched, counts func(P) bool) error {
	source := cache.NewFilteredListWatchFromClient(w.client, w.resource, w.namespace, w.narrow)
	var objects cache.Store
	none := func() bool {
		return !slices.ContainsFunc(objects.List(), func(o any) bool {
			object, ok := o.(P)
			return ok && counts(object)
		})
	}
	synced := func(store cache.Store) (bool, error) {
		objects = store
		return none(), nil
	}
	_, err := watchtools.UntilWithSync(ctx, source, P(new(T)), synced, func(watch.Event) (bool, error) { return none(), nil })
	return err
}

// errWaitEnded is why waiting ended before what was waited for had happened. The hub is not to blame, so there is nothing
// to explain; the caller that waits knows what it was for and says what to do.
type errWaitEnded struct{ error }

func (e errWaitEnded) Unwrap() error { return e.error }

// probe finds what a watch would try again forever.
func (w watched) probe(ctx context.Context) error {
	options := metav1.ListOptions{Limit: 1}
	w.narrow(&options)
	return w.client.Get().Namespace(w.namespace).Resource(w.resource).
		VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Error()
}
