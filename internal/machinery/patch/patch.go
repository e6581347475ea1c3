// Package patch writes what a controller has changed of an object, and nothing if it has changed nothing.
package patch

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// Object writes the changes of o against before, except those of its status, and reports whether there were any. It fails
// with a conflict if another writer has changed the object meanwhile.
func Object(ctx context.Context, c client.Client, o, before client.Object) (changed bool, err error) {
	keepKind(o, before)
	if equality.Semantic.DeepEqual(o, before) {
		return false, nil
	}
	if err := c.Patch(ctx, o, changes(o, before)); err != nil {
		return false, fmt.Errorf("patch %T %s: %w", o, client.ObjectKeyFromObject(before), err)
	}
	return true, nil
}

// Status writes the changes of o's status against before's, and reports whether there were any. It fails with a conflict if
// another writer has changed the object meanwhile.
func Status(ctx context.Context, c client.Client, o, before client.Object) (changed bool, err error) {
	keepKind(o, before)
	if equality.Semantic.DeepEqual(o, before) {
		return false, nil
	}
	if err := c.Status().Patch(ctx, o, against(before)); err != nil {
		return false, fmt.Errorf("patch the status of %T %s: %w", o, client.ObjectKeyFromObject(before), err)
	}
	return true, nil
}

// changes writes what differs, with the optimistic lock.
func changes(o, before client.Object) client.Patch {
	then, wasWork := before.(*workv1.ManifestWork)
	now, isWork := o.(*workv1.ManifestWork)
	if wasWork && isWork && otherSpec(then, now) {
		return &ofWork{before: then, locked: true}
	}
	return against(before)
}

// against has the optimistic lock: lists are replaced whole, and conditions are a list.
func against(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}

// keepKind gives o the kind of before, which is no change: a cache has kinds in the objects of its first list, and none in what its watch
// brings. A patch that took the kind away would be refused.
func keepKind(o, before client.Object) {
	o.GetObjectKind().SetGroupVersionKind(before.GetObjectKind().GroupVersionKind())
}
