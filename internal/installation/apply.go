package installation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/csaupgrade"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/apply/crdversion"
	"github.com/capstan-io/capstan/internal/apply/serverside"
	"github.com/capstan-io/capstan/internal/apply/stored"
)

// FieldManager owns the fields that this program applies.
const FieldManager = "capstan"

// Change is what applying an object did.
type Change string

// The changes.
const (
	Created   Change = "created"
	Changed   Change = "changed"
	Unchanged Change = "unchanged"
)

// Apply makes objects what they should be, by server-side apply: namespaces first, then CustomResourceDefinitions, which it waits
// for, then the others in their order. What client-side apply left is taken over, so fields that are not applied any more go.
// CustomResourceDefinitions of a newer version or release stay as they are; for others, what is stored in versions that they no longer have
// is stored in another one first. report is called for each object after it was applied.
func (c *Cluster) Apply(ctx context.Context, objects []*unstructured.Unstructured, report func(Reference, Change)) error {
	var definitions []string
	for _, object := range inOrder(objects) {
		if object.GroupVersionKind() != KindCRD && len(definitions) > 0 {
			if err := c.awaitServed(ctx, definitions); err != nil {
				return err
			}
			definitions = nil
		}
		var change Change
		err := retryOnConflict(func() (err error) {
			change, err = c.apply(ctx, object)
			return err
		})
		if err != nil {
			return err
		}
		report(ReferenceTo(object), change)
		if object.GroupVersionKind() == KindCRD {
			definitions = append(definitions, object.GetName())
		}
	}
	return c.awaitServed(ctx, definitions)
}

// inOrder sorts objects by what has to exist before what.
func inOrder(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	rank := func(object *unstructured.Unstructured) int {
		switch object.GroupVersionKind() {
		case KindNamespace:
			return 0
		case KindCRD:
			return 1
		case KindClusterManager, KindKlusterlet:
			return 3
		}
		return 2
	}
	sorted := slices.Clone(objects)
	slices.SortStableFunc(sorted, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return sorted
}

func (c *Cluster) apply(ctx context.Context, object *unstructured.Unstructured) (Change, error) {
	client, err := c.client(ctx, object.GroupVersionKind(), object.GetNamespace())
	if err != nil {
		return "", fmt.Errorf("apply %s: %w", ReferenceTo(object), err)
	}
	doing := "apply " + ReferenceTo(object).String()
	if object.GroupVersionKind() == KindCRD {
		object = object.DeepCopy()
		crdversion.Set(object, c.version)
	}
	direct := objects{client: client}
	before, err := direct.Get(ctx, object)
	switch {
	case apierrors.IsNotFound(err):
		before = nil
	case err != nil:
		return "", c.Explain(doing, err)
	case isBootstrapToken(object): // a new secret would end the token that users have
		return Unchanged, nil
	case isOthersClass(before, object):
		return Unchanged, nil
	case object.GroupVersionKind() == KindCRD && crdversion.IsNewer(before, c.version):
		return Unchanged, nil
	default:
		if before, err = serverside.Adopt(ctx, direct, FieldManager, before, formerManagers(before)); err != nil {
			return "", c.Explain(doing, err)
		}
		object = withRelease(object, before)
	}
	after, err := c.write(ctx, direct, object)
	switch {
	case err != nil:
		return "", c.Explain(doing, err)
	case before == nil:
		return Created, nil
	case hasChanged(before, after, object):
		return Changed, nil
	}
	return Unchanged, nil
}

// write applies an object. What is stored in versions that a CustomResourceDefinition no longer has is stored in another one first.
func (c *Cluster) write(ctx context.Context, direct objects, object *unstructured.Unstructured) (
	after *unstructured.Unstructured, _ error,
) {
	if object.GroupVersionKind() != KindCRD {
		return serverside.Apply(ctx, direct, object)
	}
	definition, err := definitionOf(object)
	if err != nil {
		return nil, err
	}
	err = stored.MigrateAndWrite(ctx, migrated{c, direct.client}, definition, func() (err error) {
		after, err = serverside.Apply(ctx, direct, object)
		return err
	})
	return after, err
}

// DryRunApply has the cluster check what applying an object would do, and changes nothing.
func (c *Cluster) DryRunApply(ctx context.Context, object *unstructured.Unstructured) error {
	client, err := c.client(ctx, object.GroupVersionKind(), object.GetNamespace())
	if err != nil {
		return err
	}
	_, err = serverside.ApplyOrUpdate(ctx, objects{client, []string{metav1.DryRunAll}}, object)
	return err
}

// hasChanged reports whether applying an object made a difference. The version of an object does not say so: controllers write the status
// in the meantime, and the API server counts a CustomResourceDefinition up that stays as it is.
func hasChanged(before, after, applied *unstructured.Unstructured) bool {
	if before.GetUID() != after.GetUID() || before.GetGeneration() != after.GetGeneration() || ownedFields(before) != ownedFields(after) ||
		!contains(before.GetLabels(), applied.GetLabels()) || !contains(before.GetAnnotations(), applied.GetAnnotations()) {
		return true
	}
	return after.GetGeneration() == 0 && !apiequality.Semantic.DeepEqual(content(before), content(after))
}

// ownedFields is the fields of an object that this program owns.
func ownedFields(object *unstructured.Unstructured) string {
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.FieldsV1 != nil {
			return entry.FieldsV1.String()
		}
	}
	return ""
}

func contains(all, some map[string]string) bool {
	return labels.SelectorFromSet(some).Matches(labels.Set(all))
}

// content is an object of a kind whose changes the API server does not count.
func content(object *unstructured.Unstructured) map[string]any {
	fields := maps.Clone(object.Object)
	delete(fields, "metadata")
	delete(fields, "status")
	return fields
}

// isBootstrapToken reports whether an object is a token that a chart has drawn at random.
func isBootstrapToken(object *unstructured.Unstructured) bool {
	kind, _, _ := unstructured.NestedString(object.Object, "type")
	return object.GroupVersionKind() == KindSecret && kind == string(bootstrapapi.SecretTypeBootstrapToken)
}

// isOthersClass reports whether a PriorityClass on the cluster is not of the application that an object is of: with another priority, new
// pods of its users would preempt others.
func isOthersClass(live, object *unstructured.Unstructured) bool {
	const application = "app"
	return object.GroupVersionKind().GroupKind() == (schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PriorityClass"}) &&
		live.GetLabels()[application] != object.GetLabels()[application]
}

// lastApplied is the field that client-side apply keeps its copy in.
var lastApplied = fieldpath.NewSet(fieldpath.MakePathOrDie("metadata", "annotations", corev1.LastAppliedConfigAnnotation))

// keptKinds are those whose objects keep what other installers have set and is not applied here. Users write ClusterManagers and
// Klusterlets, too. A Secret may have the only key of the CA of a hub, and what was asked of a volume never changes. By an annotation that
// it has set, Helm does not delete a CustomResourceDefinition, with all that is stored of its kind, when a chart leaves that out.
var keptKinds = []schema.GroupVersionKind{KindClusterManager, KindKlusterlet, KindSecret, KindCRD,
	{Version: "v1", Kind: "PersistentVolumeClaim"}}

// formerManagers are the managers of fields that an object has by client-side apply, such as kubectl's, and those of other installers,
// unless it keeps theirs: this program, too, where its user could only update.
func formerManagers(object *unstructured.Unstructured) sets.Set[string] {
	managers := sets.New[string]()
	entries := object.GetManagedFields()
	for _, entry := range csaupgrade.FindFieldsOwners(entries, metav1.ManagedFieldsOperationUpdate, lastApplied) {
		managers.Insert(entry.Manager)
	}
	if slices.Contains(keptKinds, object.GroupVersionKind()) {
		return managers
	}
	for _, entry := range entries {
		updated := entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationUpdate
		if (updated || serverside.Installers.Has(entry.Manager)) && entry.Subresource == "" {
			managers.Insert(entry.Manager)
		}
	}
	return managers
}

// Patch merges fields into an object, or, where that is not permitted, updates it.
func (c *Cluster) Patch(ctx context.Context, of Reference, patch []byte) error {
	client, err := c.client(ctx, of.GroupVersionKind, of.Namespace)
	if err != nil {
		return fmt.Errorf("change %s: %w", of, err)
	}
	_, err = client.Patch(ctx, of.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	if denied := err; apiclient.Denied(denied) {
		err = retryOnConflict(func() error { return updateBy(ctx, client, of.Name, patch) })
		if apiclient.Denied(err) {
			err = denied // which says what is missing
		}
	}
	return c.Explain("change "+of.String(), err)
}

// updateBy updates an object to what a merge patch makes of it.
func updateBy(ctx context.Context, client dynamic.ResourceInterface, name string, patch []byte) error {
	live, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	before, err := live.MarshalJSON()
	if err != nil {
		return err
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		return err
	}
	if err := live.UnmarshalJSON(after); err != nil {
		return err
	}
	_, err = client.Update(ctx, live, metav1.UpdateOptions{FieldManager: FieldManager})
	return err
}

// awaitServed waits until discovery has the kinds of CustomResourceDefinitions, which it has a moment after they are established. It reads
// their groups alone, which is less to read than all that a cluster serves.
func (c *Cluster) awaitServed(ctx context.Context, names []string) error {
	for _, name := range names {
		definition, err := c.Get(ctx, Reference{GroupVersionKind: KindCRD, Name: name})
		if err != nil {
			return err
		}
		if definition == nil { // it was deleted meanwhile
			continue
		}
		kinds, err := KindsOf(definition)
		if err != nil {
			return err
		}
		for _, kind := range kinds {
			err := poll(ctx, func() (bool, error) {
				c.forget(kind.GroupVersion())
				_, err := c.ResourceOf(ctx, kind)
				if errors.Is(err, errNotServed) {
					return false, nil
				}
				return err == nil, err
			})
			if err != nil {
				return fmt.Errorf("wait until CustomResourceDefinition %s is served: %w", name, err)
			}
		}
	}
	return nil
}

// KindsOf are the served versions of what a CustomResourceDefinition defines.
func KindsOf(definition *unstructured.Unstructured) ([]schema.GroupVersionKind, error) {
	defined, err := definitionOf(definition)
	if err != nil {
		return nil, err
	}
	var kinds []schema.GroupVersionKind
	for _, version := range defined.Spec.Versions {
		if version.Served {
			kinds = append(kinds, schema.GroupVersionKind{Group: defined.Spec.Group, Version: version.Name, Kind: defined.Spec.Names.Kind})
		}
	}
	return kinds, nil
}
