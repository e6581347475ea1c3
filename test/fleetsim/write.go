package fleetsim

import (
	"errors"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

var (
	errOther   = errors.New("the object has another UID")
	errChanged = errors.New("the object has been changed; read it again")
)

// write is the part of every write that is the API server's: what become makes of the object keeps its identity, and what
// is not its business.
func (c *Cluster) write(r *call, become func(old *unstructured.Unstructured) (*unstructured.Unstructured,
	error)) (*unstructured.Unstructured, error) {
	if ns := r.namespace(); ns != "" {
		where := key{v1("", "namespaces"), types.NamespacedName{Name: ns}}
		if c.store.get(where) == nil {
			return nil, apierrors.NewNotFound(where.GroupResource(), ns)
		}
	}
	written, err := c.store.write(r.key(), func(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		next, err := become(old)
		if err != nil {
			return nil, err
		}
		if v := next.GetResourceVersion(); old != nil && v != "" && v != old.GetResourceVersion() {
			return nil, apierrors.NewConflict(r.kind.GroupResource(), old.GetName(), errChanged)
		}
		if next, err = r.admit(old, next); err != nil {
			return nil, err
		}
		if next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0 {
			return nil, nil
		}
		return next, nil
	})
	if err == nil && r.kind == definitions {
		err = c.serve()
	}
	return written, err
}

// admit keeps apart what a request may write from what it may not.
func (r *call) admit(old, next *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	next.SetGroupVersionKind(r.kind.gvk())
	next.SetNamespace(r.namespace())
	next.SetName(r.info.Name)
	switch {
	case old == nil:
		fillSystemFields(next)
		if r.kind.status {
			delete(next.Object, "status")
			next.SetGeneration(1)
		}
	case r.info.Subresource == "status":
		kept := old.DeepCopy()
		delete(kept.Object, "status")
		if status, ok := next.Object["status"]; ok {
			kept.Object["status"] = status
		}
		next = kept
	default:
		next.SetUID(old.GetUID())
		next.SetCreationTimestamp(old.GetCreationTimestamp())
		next.SetDeletionTimestamp(old.GetDeletionTimestamp())
		r.keepStatus(old, next)
	}
	switch {
	case r.kind == definitions:
		return next, establish(next)
	case r.kind.name == "Deployment" && r.info.Subresource == "" && (old == nil || old.GetGeneration() != next.GetGeneration()):
		return next, rollOut(next)
	}
	return next, nil
}

func (r *call) keepStatus(old, next *unstructured.Unstructured) {
	if !r.kind.status {
		return
	}
	delete(next.Object, "status")
	if status, ok := old.Object["status"]; ok {
		next.Object["status"] = status
	}
	generation := old.GetGeneration()
	if !equality.Semantic.DeepEqual(desired(old), desired(next)) {
		generation++
	}
	next.SetGeneration(generation)
}

// desired is what the generation of an object is of.
func desired(o *unstructured.Unstructured) map[string]any {
	rest := maps.Clone(o.Object)
	delete(rest, "metadata")
	delete(rest, "status")
	return rest
}
