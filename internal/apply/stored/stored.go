// Package stored has objects stored in the storage version of their CustomResourceDefinition, through whatever client.
package stored

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// pageSize is how many objects are read at once.
const pageSize = 500

// Objects read and write those of a kind in all namespaces.
type Objects struct {
	Kind   string
	List   func(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error)
	Update func(ctx context.Context, object *unstructured.Unstructured) error
}

// Rewrite writes all objects as they are, which stores them in the storage version. An object that somebody else writes or deletes
// meanwhile needs no more. The error is the first of those of objects, and says how many there are.
func Rewrite(ctx context.Context, objects Objects) error {
	var first error
	failed := 0
	for next := ""; ; {
		page, err := objects.List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if token := tokenOf(err); token != "" { // the pages took longer than the API server keeps the list; it goes on with what is there now
			next = token
			continue
		}
		if err != nil {
			return err
		}
		for i := range page.Items {
			object := &page.Items[i]
			err := objects.Update(ctx, object)
			if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				continue
			}
			if failed++; first == nil {
				name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
				first = fmt.Errorf("%s %s: %w", objects.Kind, name, err)
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

// Refused reports whether the API server refused a definition because objects may be stored in a version that it does not have.
func Refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return strings.HasPrefix(cause.Field, "status.storedVersions")
	})
}

// Gone is the error for a definition that no longer has the storage version of the one on the cluster. next is the version in which it
// stores objects itself.
func Gone(definition, storage, next string, refused error) error {
	return fmt.Errorf("objects of %s are stored in version %s, which is no more: install a version first that stores them in %s: %w",
		definition, storage, next, refused)
}

// Failed is the error that not all objects of a definition could be stored in the storage version.
func Failed(definition, storage string, others []string, err error) error {
	return fmt.Errorf("store all %s in version %s, which may be stored in %s: %w", definition, storage, strings.Join(others, ", "), err)
}

// Only is the patch of the status of a definition in that version which says that all objects are stored in the storage version.
func Only(resourceVersion, storage string) []byte {
	return fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"status":{"storedVersions":[%q]}}`, resourceVersion, storage)
}
