package patch

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// AddFinalizer puts the finalizer on the object, unless it is there. The patch is as small as the change: a ManifestWork may be a megabyte,
// and a patch made by comparison would encode it twice. The error is a conflict if the object has changed meanwhile.
func AddFinalizer(ctx context.Context, c client.Client, o client.Object, finalizer string) error {
	if controllerutil.ContainsFinalizer(o, finalizer) {
		return nil
	}
	return setFinalizers(ctx, c, o, append(slices.Clone(o.GetFinalizers()), finalizer))
}

// RemoveFinalizer takes the finalizer off the object, if it is there. An object that has gone needs none removed.
func RemoveFinalizer(ctx context.Context, c client.Client, o client.Object, finalizer string) error {
	if !controllerutil.ContainsFinalizer(o, finalizer) {
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == finalizer })
	return client.IgnoreNotFound(setFinalizers(ctx, c, o, others))
}

func setFinalizers(ctx context.Context, c client.Client, o client.Object, finalizers []string) error {
	change, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"finalizers": finalizers,
		// A list is replaced whole: only the one that was read may be.
		"resourceVersion": o.GetResourceVersion(),
	}})
	if err != nil {
		return err
	}
	return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, change))
}
