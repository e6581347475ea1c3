package appliedmanifestwork

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// An object that a work has applied, and orphans by its delete option, stays when another work goes that owns it. An annotation of the
// AppliedManifestWork says which objects these are, so that agents of other hubs know of them, and an agent that has just started.

// maxOrphans is how long the annotation may be: there are others, and all together have 256 KiB. Objects that do not fit are not written
// down.
const maxOrphans = 16 << 10

// WriteOrphans writes down which objects a work has applied and orphans.
func WriteOrphans(ctx context.Context, managed client.Client, amw *workv1.AppliedManifestWork, orphans []workv1.ResourceIdentifier) error {
	encoded := ""
	if len(orphans) > 0 {
		encoded = pack(orphans)
	}
	if len(encoded) > maxOrphans {
		encoded = ""
	}
	if err := Annotate(ctx, managed, amw, fleet.AnnotationOrphans, encoded); err != nil {
		return fmt.Errorf("write down what AppliedManifestWork %s orphans: %w", amw.Name, err)
	}
	return nil
}

// Orphans reads what WriteOrphans wrote. What cannot be read names nothing.
func Orphans(amw *workv1.AppliedManifestWork) sets.Set[workv1.ResourceIdentifier] {
	var orphans []workv1.ResourceIdentifier
	if text := amw.Annotations[fleet.AnnotationOrphans]; text == "" || unpack(text, &orphans) != nil {
		return nil
	}
	return sets.New(orphans...)
}

// OrphansOfOthers are the objects that other works orphan. Works that are being deleted do not count: they do not name the objects any
// more.
func OrphansOfOthers(ctx context.Context, managed client.Reader,
	amw *workv1.AppliedManifestWork) (sets.Set[workv1.ResourceIdentifier], error) {
	all := &workv1.AppliedManifestWorkList{}
	if err := managed.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("find out what other AppliedManifestWorks than %s orphan: %w", amw.Name, err)
	}
	orphans := sets.New[workv1.ResourceIdentifier]()
	for i := range all.Items {
		if other := &all.Items[i]; other.Name != amw.Name && other.DeletionTimestamp.IsZero() {
			orphans.Insert(Orphans(other).UnsortedList()...)
		}
	}
	return orphans, nil
}
