package hubapi

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/capstan-io/capstan/internal/apiclient"
)

// Named selects the object of a name.
func Named(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
}

// Until watches until the condition is true for an object that exists. At each change, it is called for the objects that there are by then:
// for those that have not changed, too, and not for what one was in between. Lost connections are made again; what the hub refuses
// (permissions, an unknown kind) is an error at once.
func Until[T any, P pointerTo[T]](ctx context.Context, c ResourceClient, selectors metav1.ListOptions, condition func(P) bool) error {
	return c.wait(ctx, selectors, func(source *cache.ListWatch) error {
		return apiclient.Until(ctx, source, func(objects []P) bool { return slices.ContainsFunc(objects, condition) })
	})
}

// UntilNone watches until there is no object left that counts, and fails like Until.
func UntilNone[T any, P pointerTo[T]](ctx context.Context, c ResourceClient, selectors metav1.ListOptions, counts func(P) bool) error {
	return c.wait(ctx, selectors, func(source *cache.ListWatch) error {
		return apiclient.Until(ctx, source, func(objects []P) bool { return !slices.ContainsFunc(objects, counts) })
	})
}

// wait runs until on objects that may be read.
func (c ResourceClient) wait(ctx context.Context, selectors metav1.ListOptions, until func(*cache.ListWatch) error) error {
	err := c.probe(ctx, selectors)
	if err == nil {
		err = until(c.listWatch(selectors))
	}
	if err != nil && ctx.Err() != nil {
		return errWaitEnded{context.Cause(ctx)}
	}
	return err
}

// errWaitEnded is why waiting ended before what was waited for had happened. It is no error of the hub, so there is nothing
// to explain; the caller that waits says what to do.
type errWaitEnded struct{ error }

func (e errWaitEnded) Unwrap() error { return e.error }

// probe finds what a watch would try again forever.
func (c ResourceClient) probe(ctx context.Context, selectors metav1.ListOptions) error {
	selectors.Limit = 1
	return c.on(c.client.Get()).VersionedParams(&selectors, metav1.ParameterCodec).Do(ctx).Error()
}

func (c ResourceClient) listWatch(selectors metav1.ListOptions) *cache.ListWatch {
	return cache.NewFilteredListWatchFromClient(c.client, c.resource, c.namespace, func(options *metav1.ListOptions) {
		options.FieldSelector, options.LabelSelector = selectors.FieldSelector, selectors.LabelSelector
	})
}
