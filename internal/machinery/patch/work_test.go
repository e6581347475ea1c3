package patch

import (
	"context"
	"maps"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// What is read of a work is what was written, nulls and all, and what others have written of it stays.
func TestWork(t *testing.T) {
	t.Parallel()
	const manifest = `{"apiVersion":"v1","kind":"Pod","metadata":{"creationTimestamp":null,"name":"p"},"spec":{"tolerations":[{"key":null}]}}`
	for name, write := range map[string]func(context.Context, client.Client, *workv1.ManifestWork, *workv1.ManifestWork) error{
		"Work": func(ctx context.Context, c client.Client, o, before *workv1.ManifestWork) error {
			return c.Patch(ctx, o, Work(before))
		},
		"Object": func(ctx context.Context, c client.Client, o, before *workv1.ManifestWork) error {
			_, err := Object(ctx, c, o, before)
			return err
		},
	} {
		for labels, before := range map[string]map[string]string{
			"none": nil, "some": {"example.com/a~b": "1", "changes": "1", "goes": "1", "stays": "1"},
		} {
			t.Run(name+", labels: "+labels, func(t *testing.T) {
				t.Parallel()
				o := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "w", Labels: before}}
				c := worksOn(t, o)
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
					t.Fatal(err)
				}
				after := o.DeepCopy()
				after.Labels = map[string]string{"example.com/a~b": "2", "changes": "2", "stays": "1", "new": ""}
				after.Annotations = map[string]string{"example.com/note": "<1>"}
				after.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "1"}}
				after.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(manifest)}}}
				want := after.DeepCopy()
				if err := write(t.Context(), c, after, o); err != nil {
					t.Fatal(err)
				}
				read := &workv1.ManifestWork{}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), read); err != nil {
					t.Fatal(err)
				}
				if !maps.Equal(read.Labels, want.Labels) || !maps.Equal(read.Annotations, want.Annotations) || len(read.OwnerReferences) != 1 {
					t.Errorf("it is %+v", read.ObjectMeta)
				}
				if manifests := read.Spec.Workload.Manifests; len(manifests) != 1 || string(manifests[0].Raw) != manifest {
					t.Errorf("it has the manifests %+v", manifests)
				}
			})
		}
	}
}

// SD-03: a patch of a spec by Object is a conflict, too, if another writer has come first.
func TestConflictOfSpecs(t *testing.T) {
	t.Parallel()
	stale := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "w"}}
	c := worksOn(t, stale)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(stale), stale); err != nil {
		t.Fatal(err)
	}
	first := stale.DeepCopy()
	first.Labels = map[string]string{"first": "1"}
	if err := c.Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	o := stale.DeepCopy()
	o.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	if _, err := Object(t.Context(), c, o, stale); !apierrors.IsConflict(err) {
		t.Errorf("a work that has changed meanwhile is written: %v", err)
	}
}

func worksOn(t *testing.T, o *workv1.ManifestWork) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(o.DeepCopy()).WithStatusSubresource(o).Build()
}
