package patch

import (
	"context"
	"encoding/json"
	"testing"

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
