// Package stored has objects stored in the storage version of their CustomResourceDefinition, through whatever client.
package stored

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// pageSize is how many objects are read at once.
const pageSize = 500

// Client reads and writes definitions, and the objects of kinds that they define.
type Client interface {
	// Definition reads the definition of that name.
	Definition(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error)
	// MergeStatus merges a patch into a definition and its status.
	MergeStatus(ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition, patch []byte) error
	// List reads a page of the objects of a kind in all namespaces.
	List(ctx context.Context, kind schema.GroupVersionKind, options metav1.ListOptions) (*unstructured.UnstructuredList, error)
	// Update writes an object.
	Update(ctx context.Context, object *unstructured.Unstructured) error
}

// MigrateAndWrite writes a definition. If the one on the cluster has versions that this one no longer has, in which objects may be stored,
// these are migrated, and it is written again: the API server could not read such objects any more.
func MigrateAndWrite(ctx context.Context, c Client, desired *apiextensionsv1.CustomResourceDefinition, write func() error) error {
	refused := write()
	if !isRefused(refused) {
		return refused
	}
	live, err := c.Definition(ctx, desired.Name)
	if err != nil {
		return fmt.Errorf("find out in which versions objects of %s are stored: %w", desired.Name, err)
	}
	storage := version(live)
	if !slices.ContainsFunc(desired.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == storage }) {
		return fmt.Errorf("objects of %s are stored in version %s, which is no more: install a version first that stores them in %s: %w",
			desired.Name, storage, version(desired), refused)
	}
	if err := Migrate(ctx, c, live); err != nil {
		return err
	}
	return write()
}

// Migrate reads and writes each object of a definition unchanged, which stores it in the storage version, and only when all of them are
// takes the other versions off the status of the definition. An object that somebody else writes or deletes meanwhile needs no more.
func Migrate(ctx context.Context, c Client, live *apiextensionsv1.CustomResourceDefinition) error {
	storage := version(live)
	if err := rewrite(ctx, c, schema.GroupVersionKind{Group: live.Spec.Group, Version: storage, Kind: live.Spec.Names.Kind}); err != nil {
		return fmt.Errorf("store all %s in version %s, which may be stored in %s: %w", live.Name, storage, strings.Join(Others(live), ", "), err)
	}
	// With the resource version, because another storage version may have been chosen since.
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"status":{"storedVersions":[%q]}}`, live.ResourceVersion, storage)
	if err := c.MergeStatus(ctx, live, patch); err != nil {
		return fmt.Errorf("write down that all %s are stored in version %s: %w", live.Name, storage, err)
	}
	return nil
}

// Others are the versions other than the storage version in which objects of a definition may be stored.
func Others(live *apiextensionsv1.CustomResourceDefinition) []string {
	storage := version(live)
	return slices.DeleteFunc(slices.Clone(live.Status.StoredVersions), func(version string) bool { return version == storage })
}

// version is the one in which objects of a definition are stored. The API server accepts none without one.
func version(definition *apiextensionsv1.CustomResourceDefinition) string {
	version, _ := apihelpers.GetCRDStorageVersion(definition)
	return version
}

// rewrite writes all objects of a kind as they are. The error is the first of those of objects, and says how many there are.
func rewrite(ctx context.Context, c Client, kind schema.GroupVersionKind) error {
	var first error
	failed := 0
	for next := ""; ; {
		page, err := c.List(ctx, kind, metav1.ListOptions{Limit: pageSize, Continue: next})
		if token := tokenOf(err); token != "" { // the pages took longer than the API server keeps the list; it goes on with what is there now
			next = token
			continue
		}
		if err != nil {
			return err
		}
		for i := range page.Items {
			object := &page.Items[i]
			err := c.Update(ctx, object)
			if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				continue
			}
			if failed++; first == nil {
				name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
				first = fmt.Errorf("%s %s: %w", kind.Kind, name, err)
			}
		}
		if next = page.GetContinue(); next == "" {
			break
		}
	}
	if failed > 1 {
		return fmt.Errorf("%d objects cannot be written; the first: %w", failed, first)
	}
	return first
}

// tokenOf is the token that an API server gives with the error that a list has expired; empty for other errors.
func tokenOf(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

// isRefused reports whether the API server refused a definition because objects may be stored in a version that it does not have.
func isRefused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return strings.HasPrefix(cause.Field, "status.storedVersions")
	})
}
