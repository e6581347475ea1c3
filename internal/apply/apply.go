package apply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/apply/serverside"
	"github.com/capstan-io/capstan/internal/machinery/repair"
	"github.com/capstan-io/capstan/internal/rights"
)

// Apply makes the objects of the installation what they should be, by server-side apply, in their order. An object that has not changed
// since it was last applied with the same content takes no request. An object that cannot be applied does not keep the others from it;
// the error has all failures. One with a resource version is applied to that version only, and has a conflict if the object has changed
// since. A Role or ClusterRole is applied without the rules that may not be granted; see [Cluster.MissingRules]. The objects are not
// changed, except that those that were applied get the UID, the generation and the resource version that they have on the cluster.
func (c *Cluster) Apply(ctx context.Context, installation string, objects ...client.Object) error {
	var failures []error
	for _, object := range objects {
		apply := c.apply
		if rulesOf(object) != nil {
			apply = c.applyRole
		}
		if err := apply(ctx, installation, object); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (c *Cluster) apply(ctx context.Context, installation string, object client.Object) error {
	desired, err := c.desired(installation, object)
	if err != nil {
		return err
	}
	name := reference{desired.GroupVersionKind(), client.ObjectKeyFromObject(desired)}
	if c.leftOut(name.GroupVersionKind) {
		return nil
	}
	hash, err := hashOf(desired)
	if err != nil {
		return err
	}
	if live := c.unchanged(ctx, name, hash); live != nil {
		copyServerFields(object, live)
		return nil
	}
	desired.SetResourceVersion(object.GetResourceVersion())
	undo, err := c.takeRepair(name, hash)
	if err != nil {
		return err
	}
	changed, err := c.write(ctx, desired)
	if err != nil || !changed {
		undo()
	}
	if err != nil {
		return c.applyError(name, err)
	}
	c.mu.Lock()
	c.applied[name] = state{hash, desired.GetUID(), desired.GetResourceVersion()}
	c.mu.Unlock()
	copyServerFields(object, desired)
	return nil
}

// takeRepair counts that an object is applied again with the same content, and fails if others have undone that too often to do it now. It
// returns a function for a caller that has changed nothing after all.
func (c *Cluster) takeRepair(name reference, hash string) (undo func(), err error) {
	c.mu.Lock()
	last, known := c.applied[name]
	c.mu.Unlock()
	if !known || last.hash != hash {
		return func() {}, nil
	}
	o := repair.Object{GroupKind: name.GroupKind(), NamespacedName: name.NamespacedName}
	undo, due := c.backoff.Take(o, false)
	if undo == nil {
		return nil, &repair.BackoffError{Object: o, Until: due}
	}
	return undo, nil
}

// applyError is the error that an object could not be applied, with the rule that would permit it if that is why. It is nil for one that is
// left out because of that.
func (c *Cluster) applyError(name reference, err error) error {
	if !apiclient.Denied(err) {
		return fmt.Errorf("apply %s: %w", name, err)
	}
	rule := rights.Rule(name.GroupKind(), "", "", allVerbs...)
	if !slices.Contains(c.Optional, name.GroupVersionKind) {
		return fmt.Errorf("apply %s: %w; the rule %s permits it", name, err, rule)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unwritten[name.GroupVersionKind] = rule
	return nil
}

// write applies an object, and reports whether that has changed it, as far as that is known.
func (c *Cluster) write(ctx context.Context, desired *unstructured.Unstructured) (changed bool, err error) {
	direct := objects{c.Client, c.FieldManager}
	live, err := direct.Get(ctx, desired)
	known := !apiclient.Denied(err) // to apply may be permitted
	switch {
	case !known || apierrors.IsNotFound(err):
		live = nil
	case err != nil:
		return false, err
	default:
		if live, err = c.adopt(ctx, direct, live, desired); err != nil {
			return false, err
		}
	}
	applied, err := serverside.Apply(ctx, direct, desired)
	if err != nil {
		return false, err
	}
	desired.Object = applied.Object
	return known && (live == nil || live.GetResourceVersion() != applied.GetResourceVersion() && !isSameSpec(live, applied)), nil
}

// isSameSpec reports whether two versions of an object of a kind with generations differ in their status alone, which others write while an
// object is applied.
func isSameSpec(before, after *unstructured.Unstructured) bool {
	return after.GetGeneration() != 0 && before.GetGeneration() == after.GetGeneration() && before.GetUID() == after.GetUID() &&
		maps.Equal(before.GetLabels(), after.GetLabels()) && maps.Equal(before.GetAnnotations(), after.GetAnnotations()) &&
		apiequality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences()) &&
		slices.Equal(before.GetFinalizers(), after.GetFinalizers())
}

// adopt makes the fields that others have set on an object those of this one, if it has never applied the object, and later those of other
// installers. Fields that controllers of Kubernetes keep stay theirs. What is to be applied to the version from before is applied to that
// which there is then.
func (c *Cluster) adopt(ctx context.Context, direct objects, live, desired *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	others, applied := sets.New[string](), false
	for _, entry := range live.GetManagedFields() {
		switch {
		case entry.Manager == c.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply:
			applied = true
		case entry.Subresource != "" || strings.HasPrefix(entry.Manager, "kube-"):
		case entry.Operation == metav1.ManagedFieldsOperationUpdate, serverside.Installers.Has(entry.Manager):
			others.Insert(entry.Manager)
		}
	}
	if applied {
		others = others.Intersection(serverside.Installers)
	}
	adopted, err := serverside.Adopt(ctx, direct, c.FieldManager, live, others)
	if err != nil {
		return nil, err
	}
	if desired.GetResourceVersion() == live.GetResourceVersion() {
		desired.SetResourceVersion(adopted.GetResourceVersion())
	}
	return adopted, nil
}

// unchanged returns the object if it has that content and is as it was left.
func (c *Cluster) unchanged(ctx context.Context, name reference, hash string) client.Object {
	c.mu.Lock()
	last, known := c.applied[name]
	c.mu.Unlock()
	if !known || last.hash != hash {
		return nil
	}
	live := c.prototype(name.GroupVersionKind)
	if err := c.reader(name.GroupVersionKind).Get(ctx, name.NamespacedName, live); err != nil {
		return nil
	}
	if live.GetUID() != last.uid || live.GetResourceVersion() != last.resourceVersion || live.GetDeletionTimestamp() != nil {
		return nil
	}
	return live
}

// desired is the object as it is applied: without what only the API server sets, and with the label of the installation.
func (c *Cluster) desired(installation string, object client.Object) (*unstructured.Unstructured, error) {
	kind, err := apiutil.GVKForObject(object, c.Scheme)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	desired := &unstructured.Unstructured{Object: content}
	desired.SetGroupVersionKind(kind)
	delete(content, "status")
	for _, field := range []string{"creationTimestamp", "managedFields", "resourceVersion", "uid", "generation"} {
		unstructured.RemoveNestedField(content, "metadata", field)
	}
	labels := maps.Clone(desired.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[c.Label] = installation
	desired.SetLabels(labels)
	withoutNulls(content)
	return desired, nil
}

// withoutNulls removes the fields without a value, which the types of the API write for lists that are not set.
func withoutNulls(value any) {
	switch value := value.(type) {
	case map[string]any:
		maps.DeleteFunc(value, func(_ string, v any) bool { return v == nil })
		for _, v := range value {
			withoutNulls(v)
		}
	case []any:
		for _, v := range value {
			withoutNulls(v)
		}
	}
}

func hashOf(desired *unstructured.Unstructured) (string, error) {
	content, err := json.Marshal(desired.Object)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}

// copyServerFields copies what the cluster has set.
func copyServerFields(object, live client.Object) {
	object.SetUID(live.GetUID())
	object.SetGeneration(live.GetGeneration())
	object.SetResourceVersion(live.GetResourceVersion())
}

// String is how messages name the object.
func (r reference) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}
