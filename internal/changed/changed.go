// Package changed tells which updates of what is watched matter. After a watch was away, its next list shows an object that was
// deleted and made anew meanwhile as an update, which may look like none: both are of generation 1.
package changed

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Recreated matches objects that were made anew.
func Recreated() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() }}
}

// Generation matches what has another spec, or was made anew.
func Generation() predicate.Predicate {
	return predicate.Or(predicate.Predicate(predicate.GenerationChangedPredicate{}), Recreated())
}

// Either matches objects of which something holds, and updates after which it does not any more.
func Either(holds func(client.Object) bool) predicate.Predicate {
	either := predicate.NewPredicateFuncs(holds)
	either.UpdateFunc = func(e event.UpdateEvent) bool { return holds(e.ObjectOld) || holds(e.ObjectNew) }
	return either
}
