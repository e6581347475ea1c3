// Package serverside writes single objects by server-side apply, through whatever client: it takes over the fields of earlier installers,
// replaces what never changes, and does with the right to create and update where patching is not permitted.
package serverside

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apiclient"
)

// Client reads and writes objects as one field manager. It returns what the API server has then, and does not change what it is given.
type Client interface {
	// Get reads the object that has the kind, namespace and name of another.
	Get(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error)
	// Apply applies an object, by force.
	Apply(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error)
	// Create creates an object.
	Create(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error)
	// Update replaces an object.
	Update(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error)
	// Patch changes an object by a JSON patch.
	Patch(ctx context.Context, object *unstructured.Unstructured, patch []byte) (*unstructured.Unstructured, error)
	// Delete deletes an object, and in the background what it owns; no other version than that of the object, if it has one.
	Delete(ctx context.Context, object *unstructured.Unstructured) error
}

// Installers are the field managers of other programs that install the same: the operator of Open Cluster Management, clusteradm and Helm.
// Each may have come after this one, which does not leave what they have set when it comes back.
var Installers = sets.New("registration-operator", "clusteradm", "helm")

// Adopt hands the fields of an object on the cluster that other managers have set or applied to the field manager of the client: a field
// that is not applied any more would stay for ever, and what is merged from two installers is what none of them means. Those of a namespace
// stay theirs, as it belongs to its users, too. It returns the object as it is then, also if the fields may not be changed.
func Adopt(ctx context.Context, c Client, manager string, live *unstructured.Unstructured, others sets.Set[string]) (
	*unstructured.Unstructured, error,
) {
	if others.Len() == 0 || live.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Namespace"}) {
		return live, nil
	}
	updated, others := asUpdated(live, others, manager)
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(updated, others, manager)
	if err != nil || len(patch) == 0 {
		return live, err
	}
	adopted, err := c.Patch(ctx, live, patch)
	if apierrors.IsNotFound(err) || apiclient.Denied(err) { // to create or to update it may be permitted
		return live, nil
	}
	return adopted, err
}

// asUpdated is an object with what managers have applied as if others had set it otherwise, and the names of all of them: csaupgrade hands
// over nothing that was applied, and of two entries of one name for one version of the API only the first.
func asUpdated(live *unstructured.Unstructured, managers sets.Set[string], own string) (*unstructured.Unstructured, sets.Set[string]) {
	entries, names := live.GetManagedFields(), managers.Clone()
	for i := range entries {
		entry := &entries[i]
		applied := entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
		if applied && entry.Manager != own && managers.Has(entry.Manager) {
			entry.Manager, entry.Operation = entry.Manager+" (applied)", metav1.ManagedFieldsOperationUpdate
			names.Insert(entry.Manager)
		}
	}
	updated := live.DeepCopy()
	updated.SetManagedFields(entries)
	return updated, names
}

// Apply is ApplyOrUpdate, but changes what never changes of an object, such as the selector of a Deployment, by deleting it first, unless
// that would delete what users have stored, or others use.
func Apply(ctx context.Context, c Client, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	applied, err := ApplyOrUpdate(ctx, c, object)
	if !immutable(err) || slices.Contains(withData, object.GroupVersionKind().GroupKind()) {
		return applied, err
	}
	if err := c.Delete(ctx, object); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("replace it, because what has to change is immutable: %w", err)
	}
	anew := object.DeepCopy()
	anew.SetResourceVersion("")
	return ApplyOrUpdate(ctx, c, anew)
}

// withData are the kinds whose objects hold what users have stored, or others use. Those of operators do: what they install goes with them.
var withData = []schema.GroupKind{
	{Kind: "Namespace"},
	{Kind: "PersistentVolumeClaim"},
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"},
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"},
	{Group: operatorv1.GroupVersion.Group, Kind: "ClusterManager"},
	{Group: operatorv1.GroupVersion.Group, Kind: "Klusterlet"},
}

// ApplyOrUpdate applies an object, or, where that is not permitted, creates or updates it. Where that is not permitted either, the error
// says what is missing to apply it.
func ApplyOrUpdate(ctx context.Context, c Client, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	applied, denied := c.Apply(ctx, object)
	if !apiclient.Denied(denied) {
		return applied, denied
	}
	updated, err := createOrUpdate(ctx, c, object)
	if apiclient.Denied(err) {
		return nil, denied // which says what is missing
	}
	return updated, err
}

// createOrUpdate is for who may not patch. What the object does not set stays as it is.
func createOrUpdate(ctx context.Context, c Client, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := c.Get(ctx, object)
	if apierrors.IsNotFound(err) && object.GetResourceVersion() == "" {
		return c.Create(ctx, object)
	}
	if err != nil {
		return nil, err
	}
	merge(live.Object, object.DeepCopy().Object)
	return c.Update(ctx, live)
}

// merge sets the fields of an object that another one has.
func merge(into, from map[string]any) {
	for key, value := range from {
		fields, isObject := value.(map[string]any)
		existing, wasObject := into[key].(map[string]any)
		if isObject && wasObject {
			merge(existing, fields)
		} else {
			into[key] = value
		}
	}
}

// immutable reports whether the API server refused a change for the only reason that a field never changes.
func immutable(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return false
	}
	return !slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return !slices.ContainsFunc(neverChanges, func(part string) bool { return strings.Contains(cause.Message, part) })
	})
}

// neverChanges are parts of what the API server says of fields that never change, the last one of the family of a Service, which has an
// address of it.
var neverChanges = []string{"immutable", "may not be changed", "cannot change", "as indicated by `ipFamilies"}
