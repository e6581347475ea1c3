package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var namespaces = corev1.SchemeGroupVersion.WithKind("Namespace")

// fixedNamespaces are those of installations whether they have the label or not. Only administrators write there.
var fixedNamespaces = []string{metav1.NamespaceSystem, fleet.NamespaceOperators, fleet.NamespaceHub, fleet.NamespaceAgentAddOn}

// Prune deletes the objects of the installation that are not among those to keep, except CRDs, and returns the ones that are still there:
// because they have finalizers, or because the cache has not seen their deletion yet. An object that cannot be deleted does not keep the
// others from it; the error has all failures. What the cache has not seen yet is pruned when it is: there is an event then.
func (c *Cluster) Prune(ctx context.Context, installation string, keep ...client.Object) (left []string, err error) {
	return c.prune(ctx, installation, c.List, keep)
}

// PruneLive does the same as [Cluster.Prune], and reads from the API server which objects there are: also those that the cache has not seen
// yet. It is for the end of an installation, after which no event is handled.
func (c *Cluster) PruneLive(ctx context.Context, installation string, keep ...client.Object) (left []string, err error) {
	return c.prune(ctx, installation, c.ListLive, keep)
}

// lister returns the objects of an installation of a kind.
type lister func(ctx context.Context, installation string, kind schema.GroupVersionKind) ([]client.Object, error)

func (c *Cluster) prune(ctx context.Context, installation string, list lister, keep []client.Object) (left []string, err error) {
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
		if kind == CRDs {
			continue
		}
		objects, err := list(ctx, installation, kind)
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

// Delete deletes an object of a kind that the cluster watches, unless it is being deleted already or has been replaced by another.
func (c *Cluster) Delete(ctx context.Context, object client.Object) error {
	kind, err := apiutil.GVKForObject(object, c.Scheme)
	if err != nil {
		return err
	}
	c.forget(reference{kind, client.ObjectKeyFromObject(object)})
	if object.GetDeletionTimestamp() != nil {
		return nil
	}
	options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground)}
	if uid := object.GetUID(); uid != "" {
		options = append(options, client.Preconditions{UID: &uid})
	}
	err = c.Client.Delete(ctx, object, options...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the next event has what is there now
	}
	return err
}

// forget has an object that is applied again count as new: nobody else has undone it.
func (c *Cluster) forget(name reference) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.applied, name)
	delete(c.ungranted, name)
}

// List returns the objects of the installation of that kind, as they were last seen; none of a kind that may not be watched.
func (c *Cluster) List(ctx context.Context, installation string, kind schema.GroupVersionKind) ([]client.Object, error) {
	if !c.watches(kind) {
		return nil, nil
	}
	list := listMetadata
	if kind == Deployments {
		list = listDeployments
	}
	labelled, err := list(ctx, c.cache, kind, client.MatchingLabels{c.Label: installation})
	if err != nil {
		return nil, err
	}
	return c.withoutForeign(ctx, c.cache, installation, labelled)
}

// ListLive does the same as [Cluster.List] for the metadata of objects, and reads them from the API server.
func (c *Cluster) ListLive(ctx context.Context, installation string, kind schema.GroupVersionKind) ([]client.Object, error) {
	if !c.watches(kind) {
		return nil, nil
	}
	labelled, err := listMetadata(ctx, c.Client, kind, client.MatchingLabels{c.Label: installation})
	if err != nil {
		return nil, err
	}
	return c.withoutForeign(ctx, c.Client, installation, labelled)
}

// withoutForeign leaves out the objects in namespaces of others, whose users can write the label on what is theirs. A namespace is one of
// installations if it has the label, which takes rights beyond it, or a fixed name, or that of the installation, as hosted ones do. Without
// the right to watch namespaces, all objects count.
func (c *Cluster) withoutForeign(ctx context.Context, from client.Reader, installation string, labelled []client.Object) (
	[]client.Object, error,
) {
	namespaced := func(o client.Object) bool { return o.GetNamespace() != "" }
	if !slices.ContainsFunc(labelled, namespaced) || !slices.Contains(c.Kinds, namespaces) || !c.watches(namespaces) {
		return labelled, nil
	}
	made, err := listMetadata(ctx, from, namespaces, client.HasLabels{c.Label})
	if err != nil {
		return nil, err
	}
	own := sets.New(fixedNamespaces...).Insert(installation)
	for _, namespace := range made {
		own.Insert(namespace.GetName())
	}
	return slices.DeleteFunc(labelled, func(o client.Object) bool { return namespaced(o) && !own.Has(o.GetNamespace()) }), nil
}

func listMetadata(ctx context.Context, from client.Reader, kind schema.GroupVersionKind, which client.ListOption) ([]client.Object, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	if err := from.List(ctx, list, which); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	objects := make([]client.Object, 0, len(list.Items))
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(kind)
		objects = append(objects, &list.Items[i])
	}
	return objects, nil
}

func listDeployments(ctx context.Context, from client.Reader, kind schema.GroupVersionKind, which client.ListOption) (
	[]client.Object, error,
) {
	list := &appsv1.DeploymentList{}
	if err := from.List(ctx, list, which); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	objects := make([]client.Object, 0, len(list.Items))
	for i := range list.Items {
		objects = append(objects, &list.Items[i])
	}
	return objects, nil
}
