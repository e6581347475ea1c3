package rights

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/capstan-io/capstan/internal/apiclient"
)

// WithoutWatches returns a client that reads from the API server what may not be watched, and reads everything else from the cache that the
// other client has. What may not be read either is as if it were not there.
func WithoutWatches(cached client.Client, api client.Reader, missing []Watch) client.Client {
	c := &withoutWatches{Client: cached, api: api, missing: sets.New[schema.GroupKind]()}
	for _, watch := range missing {
		c.missing.Insert(watch.GroupKind())
	}
	return c
}

type withoutWatches struct {
	client.Client
	api     client.Reader
	missing sets.Set[schema.GroupKind]
}

// Get implements client.Client.
func (c *withoutWatches) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	kind, err := apiutil.GVKForObject(object, c.Scheme())
	if err != nil {
		return err
	}
	if !c.missing.Has(kind.GroupKind()) {
		return c.Client.Get(ctx, key, object, options...)
	}
	err = c.api.Get(ctx, key, object, options...)
	if apiclient.Denied(err) {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		return apierrors.NewNotFound(resource.GroupResource(), key.Name)
	}
	return err
}

// List implements client.Client.
func (c *withoutWatches) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	kind, err := apiutil.GVKForObject(list, c.Scheme())
	if err != nil {
		return err
	}
	if !c.missing.Has(schema.GroupKind{Group: kind.Group, Kind: kind.Kind[:len(kind.Kind)-len("List")]}) {
		return c.Client.List(ctx, list, options...)
	}
	err = c.api.List(ctx, list, options...)
	if apiclient.Denied(err) {
		return nil
	}
	return err
}
