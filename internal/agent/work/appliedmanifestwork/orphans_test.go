package appliedmanifestwork

import (
	"fmt"
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// WK-12: what a work orphans is written down as long as there is room, and no longer than it is so.
func TestOrphans(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2)) // what cannot be compressed, and is the same each time
	amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "hash-work"}}
	managed := fake.NewClientBuilder().WithScheme(scheme).WithObjects(amw).Build()
	for _, test := range []struct{ all, written int }{{3, 3}, {300, 300}, {3000, 0}, {1, 1}, {0, 0}} {
		var orphans []workv1.ResourceIdentifier
		for range test.all {
			orphans = append(orphans, workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: "default",
				Name: fmt.Sprintf("%016x", random.Uint64())})
		}
		if err := WriteOrphans(t.Context(), managed, amw, orphans); err != nil {
			t.Fatal(err)
		}
		written := Orphans(amw)
		if len(written) != test.written || test.written > 0 && !written.HasAll(orphans...) ||
			len(amw.Annotations[fleet.AnnotationOrphans]) > maxOrphans {
			t.Errorf("%d of %d are written down", len(written), test.all)
		}
	}
	for _, text := range []string{"?", "bm8="} {
		amw.Annotations = map[string]string{fleet.AnnotationOrphans: text}
		if orphans := Orphans(amw); len(orphans) > 0 {
			t.Errorf("%q is %v", text, orphans)
		}
	}
}
