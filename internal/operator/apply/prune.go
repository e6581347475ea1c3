package apply

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Prune deletes the objects of the installation that are not among those to keep, and returns the ones that are still there: because
// finalizers hold them, or because the cache has not seen their deletion yet. An object that cannot be deleted does not keep the others
// from it; the error has all failures.
func (c *Cluster) Prune(ctx context.Context, installation string, keep ...client.Object) (left []string, err error) {
	kept := map[reference]bool{}
	for _, object := range keep {
		kind, err := apiutil.GVKForObject(object, c.Scheme)
		if err != nil {
			return nil, err
		}
		kept[reference{kind, client.ObjectKeyFromObject(object)}] = true
	}
	var failures []error
	for _, kind := range c.Kinds {
		objects, err := c.List(ctx, installation, kind)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			name := reference{kind, client.ObjectKeyFromObject(object)}
			if kept[name] {
				continue
			}
			left = append(left, name.String())
			if err := c.Delete(ctx, object); err != nil {
				failures = append(failures, fmt.Errorf("delete %s: %w", name, err))
			}
		}
	}
	return left, errors.Join(failures...)
}

// PruneLive does the same as [Cluster.Prune] for all objects of the installation, and asks the API server which they are: also those that
// the cache has not seen yet. It is for the end of an installation.
func (c *Cluster) PruneLive(ctx context.Context, installation string) (left []string, err error) {
	var failures []error
	for _, kind := range c.Kinds {
		if c.leftOut(kind) {
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := c.Client.List(ctx, list, client.MatchingLabels{c.Label: installation}); err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			object.SetGroupVersionKind(kind)
			name := reference{kind, client.ObjectKeyFromObject(object)}
			left = append(left, name.String())
			if err := c.Delete(ctx, object); err != nil {
				failures = append(failures, fmt.Errorf("delete %s: %w", name, err))
			}
		}
	}
	return left, errors.Join(failures...)
}

// Delete deletes an object of a kind that the cluster watches, unless it is being deleted already or has been replaced by another.
func (c *Cluster) Delete(ctx context.Context, object client.Object) error {
	kind, err := apiutil.GVKForObject(object, c.Scheme)
	if err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.applied, reference{kind, client.ObjectKeyFromObject(object)})
	c.mu.Unlock()
	if object.GetDeletionTimestamp() != nil {
		return nil
	}
	options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground)}
	if uid := object.GetUID(); uid != "" {
		options = append(options, client.Preconditions{UID: &uid})
	}
	err = c.Client.Delete(ctx, object, options...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the next event tells what is there now
	}
	return err
}

// List returns the objects of the installation of that kind, as they were last seen.
func (c *Cluster) List(ctx context.Context, installation string, kind schema.GroupVersionKind) ([]client.Object, error) {
	if c.leftOut(kind) {
		return nil, nil
	}
	if kind == Deployments {
		return c.listDeployments(ctx, installation)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	if err := c.cache.List(ctx, list, client.MatchingLabels{c.Label: installation}); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	objects := make([]client.Object, 0, len(list.Items))
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(kind)
		objects = append(objects, &list.Items[i])
	}
	return objects, nil
}

func (c *Cluster) listDeployments(ctx context.Context, installation string) ([]client.Object, error) {
	list := &appsv1.DeploymentList{}
	if err := c.cache.List(ctx, list, client.MatchingLabels{c.Label: installation}); err != nil {
		return nil, fmt.Errorf("list Deployments: %w", err)
	}
	objects := make([]client.Object, 0, len(list.Items))
	for i := range list.Items {
		objects = append(objects, &list.Items[i])
	}
	return objects, nil
}
