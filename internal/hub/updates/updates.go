// Package updates says which updates of an object a controller looks at.
package updates

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// OfSpec passes updates of the spec, and those by which the object is another one. An informer that lists again after a while
// makes one update of a deletion and a creation that it has missed, and both objects may have the same generation.
func OfSpec() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
	}})
}
