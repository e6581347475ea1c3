package patch

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// An object that was built anew changes what a cache has, whether that is from a list, with its kind, or from a watch, without: the kind is
// no part of the change.
func TestKindIsNoChange(t *testing.T) {
	t.Parallel()
	kind := metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "ManifestWork"}
	for name, test := range map[string]struct {
		before metav1.TypeMeta
		labels map[string]string
		wants  bool
	}{
		"from a list":             {kind, map[string]string{"a": "b"}, true},
		"from a watch":            {metav1.TypeMeta{}, map[string]string{"a": "b"}, true},
		"from a list, and equal":  {kind, nil, false},
		"from a watch, and equal": {metav1.TypeMeta{}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			about := metav1.ObjectMeta{Namespace: "c1", Name: "w", ResourceVersion: "1"}
			before := &workv1.ManifestWork{TypeMeta: test.before, ObjectMeta: about}
			after := &workv1.ManifestWork{ObjectMeta: about}
			after.Labels = test.labels
			var sent []map[string]any
			note := func(o client.Object, p client.Patch) error {
				content, err := p.Data(o)
				if err != nil {
					return err
				}
				one := map[string]any{}
				sent = append(sent, one)
				return json.Unmarshal(content, &one)
			}
			c := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(_ context.Context, _ client.WithWatch, o client.Object, p client.Patch, _ ...client.PatchOption) error {
					return note(o, p)
				},
				SubResourcePatch: func(_ context.Context, _ client.Client, _ string, o client.Object, p client.Patch,
					_ ...client.SubResourcePatchOption) error {
					return note(o, p)
				},
			}).Build()
			for _, write := range []func(context.Context, client.Client, client.Object, client.Object) (bool, error){Object, Status} {
				changed, err := write(t.Context(), c, after.DeepCopy(), before)
				if err != nil || changed != test.wants {
					t.Errorf("changed %t, %v, want %t", changed, err, test.wants)
				}
			}
			for _, patch := range sent {
				if _, has := patch["kind"]; has || patch["apiVersion"] != nil {
					t.Errorf("the patch is about the kind: %v", patch)
				}
			}
		})
	}
}

// SD-03: each write is a patch with the version that was read. If another writer has come first, it is a conflict, and changes nothing.
func TestConflict(t *testing.T) {
	t.Parallel()
	const mine, other = "example.com/mine", "example.com/other"
	for name, write := range map[string]func(context.Context, client.Client, *workv1.ManifestWork) error{
		"Object": func(ctx context.Context, c client.Client, work *workv1.ManifestWork) error {
			before := work.DeepCopy()
			work.Labels = map[string]string{"a": "b"}
			_, err := Object(ctx, c, work, before)
			return err
		},
		"Status": func(ctx context.Context, c client.Client, work *workv1.ManifestWork) error {
			before := work.DeepCopy()
			work.Status.Conditions = []metav1.Condition{{Type: "Applied", Status: metav1.ConditionTrue, Reason: "Applied"}}
			_, err := Status(ctx, c, work, before)
			return err
		},
		"AddFinalizer": func(ctx context.Context, c client.Client, work *workv1.ManifestWork) error {
			return AddFinalizer(ctx, c, work, other)
		},
		"RemoveFinalizer": func(ctx context.Context, c client.Client, work *workv1.ManifestWork) error {
			return RemoveFinalizer(ctx, c, work, mine)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			about := metav1.ObjectMeta{Namespace: "c1", Name: "w", Finalizers: []string{mine}}
			c, sent := recording(t, &workv1.ManifestWork{ObjectMeta: about})
			read := func() *workv1.ManifestWork {
				work := &workv1.ManifestWork{}
				if err := c.Get(t.Context(), client.ObjectKey{Namespace: about.Namespace, Name: about.Name}, work); err != nil {
					t.Fatal(err)
				}
				return work
			}
			stale, first := read(), read()
			first.Finalizers = append(first.Finalizers, "example.com/first")
			if err := c.Update(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			version := stale.ResourceVersion
			if err := write(t.Context(), c, stale); !apierrors.IsConflict(err) {
				t.Errorf("an object that has changed meanwhile is written: %v", err)
			}
			if now := read(); !equality.Semantic.DeepEqual(now, first) {
				t.Errorf("in spite of the conflict, it is %+v", now)
			}
			if err := write(t.Context(), c, read()); err != nil {
				t.Errorf("when it is read again: %v", err)
			}
			if want := []string{version, first.ResourceVersion}; !slices.Equal(*sent, want) {
				t.Errorf("the patches are of the versions %q, want %q", *sent, want)
			}
		})
	}
}

// recording is a client for an object that notes of which version each patch is.
func recording(t *testing.T, o client.Object) (c client.Client, versions *[]string) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	versions = new([]string)
	note := func(o client.Object, p client.Patch) error {
		content, err := p.Data(o)
		if err != nil {
			return err
		}
		body := metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(content, &body); err != nil {
			return err
		}
		*versions = append(*versions, body.ResourceVersion)
		return nil
	}
	c = fake.NewClientBuilder().WithScheme(scheme).WithObjects(o).WithStatusSubresource(o).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			if err := note(o, p); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, p client.Patch,
			options ...client.SubResourcePatchOption) error {
			if err := note(o, p); err != nil {
				return err
			}
			return c.SubResource(name).Patch(ctx, o, p, options...)
		},
	}).Build()
	return c, versions
}
