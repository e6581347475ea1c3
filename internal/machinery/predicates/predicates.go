// Package predicates has predicates for the events of watches. After a watch was interrupted, the next list shows an object that was
// deleted and created again as an update; and the update may look as if nothing had changed, for both objects have generation 1.
package predicates

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Recreated matches updates to another object of the same name: one that was deleted and created again.
func Recreated() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() }}
}

// Generation matches updates that change the spec, or to an object that was created again.
func Generation() predicate.Predicate {
	return predicate.Or(predicate.Predicate(predicate.GenerationChangedPredicate{}), Recreated())
}

// Either selects objects that match, and updates from or to such an object.
func Either(matches func(client.Object) bool) predicate.Predicate {
	either := predicate.NewPredicateFuncs(matches)
	either.UpdateFunc = func(e event.UpdateEvent) bool { return matches(e.ObjectOld) || matches(e.ObjectNew) }
	return either
}
