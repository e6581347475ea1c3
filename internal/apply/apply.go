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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

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
	if !rights.Denied(err) {
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

// write applies an object, and reports whether that has changed it, as far as that is known. The first time, the fields that other
// installers own become those of this one, so that those go which it does not set: an object that is merged from two installers would be
// what none of them means. What cannot be changed of an object, such as the selector of a Deployment, is changed by deleting it first.
func (c *Cluster) write(ctx context.Context, desired *unstructured.Unstructured) (changed bool, err error) {
	before, known, err := c.adopt(ctx, desired)
	if err != nil {
		return false, err
	}
	content := desired.DeepCopy()
	err = c.serverSideApply(ctx, desired)
	if !apierrors.IsInvalid(err) || !immutable(err) {
		return known && desired.GetResourceVersion() != before, err
	}
	err = c.Client.Delete(ctx, content.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationBackground), onlyVersionOf(content))
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("replace it, because what has to change is immutable: %w", err)
	}
	desired.Object = content.Object
	desired.SetResourceVersion("")
	return true, c.serverSideApply(ctx, desired)
}

// onlyVersionOf has nothing else deleted than the version of an object, if it has one.
func onlyVersionOf(object client.Object) client.Preconditions {
	if version := object.GetResourceVersion(); version != "" {
		return client.Preconditions{ResourceVersion: &version}
	}
	return client.Preconditions{}
}

// serverSideApply applies an object, or, where that is not permitted, creates or updates it.
func (c *Cluster) serverSideApply(ctx context.Context, desired *unstructured.Unstructured) error {
	content := desired.DeepCopy()
	err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), client.ForceOwnership, client.FieldOwner(c.FieldManager))
	if !rights.Denied(err) {
		return err
	}
	desired.Object = content.Object
	if c.createOrUpdate(ctx, desired) != nil {
		return err // which says what is missing
	}
	return nil
}

// createOrUpdate is for who may not patch. What the object does not set stays as it is.
func (c *Cluster) createOrUpdate(ctx context.Context, desired *unstructured.Unstructured) error {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(desired.GroupVersionKind())
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(desired), live)
	if apierrors.IsNotFound(err) && desired.GetResourceVersion() == "" {
		return c.Client.Create(ctx, desired, client.FieldOwner(c.FieldManager))
	}
	if err != nil {
		return err
	}
	merge(live.Object, desired.Object)
	if err := c.Client.Update(ctx, live, client.FieldOwner(c.FieldManager)); err != nil {
		return err
	}
	desired.Object = live.Object
	return nil
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
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return false
	}
	return !slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return !slices.ContainsFunc(neverChanges, func(part string) bool { return strings.Contains(cause.Message, part) })
	})
}

// neverChanges are parts of what the API server says of fields that never change, the last one of the family of a Service, which has an
// address of it.
var neverChanges = []string{"immutable", "may not be changed", "cannot change", "as indicated by `ipFamilies"}

// adopt makes the fields that others have set on an object those of this field manager, if it has never applied the object. Fields that
// controllers of Kubernetes keep stay theirs, and so do those of a namespace, which belongs to its users, too. It returns the resource
// version of the object, which is empty if there is none, if that is known.
func (c *Cluster) adopt(ctx context.Context, desired *unstructured.Unstructured) (version string, known bool, err error) {
	if desired.GetKind() == "Namespace" {
		return "", false, nil
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(desired.GroupVersionKind())
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(desired), live); err != nil {
		if rights.Denied(err) {
			return "", false, nil // to apply may be permitted
		}
		return "", true, client.IgnoreNotFound(err)
	}
	version = live.GetResourceVersion()
	others := sets.New[string]()
	for _, entry := range live.ManagedFields {
		switch {
		case entry.Manager == c.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply:
			return version, true, nil
		case entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == "" && !strings.HasPrefix(entry.Manager, "kube-"):
			others.Insert(entry.Manager)
		}
	}
	if len(others) == 0 {
		return version, true, nil
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(live, others, c.FieldManager)
	if err != nil || patch == nil {
		return version, true, err
	}
	if err := c.Client.Patch(ctx, live, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		if rights.Denied(err) {
			return version, true, nil // to update may be permitted
		}
		return version, true, client.IgnoreNotFound(err)
	}
	if desired.GetResourceVersion() == version {
		desired.SetResourceVersion(live.GetResourceVersion())
	}
	return live.GetResourceVersion(), true, nil
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
