package apply

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// definition is a definition that stores objects in v1beta2, and may have stored them in others before.
func definition(stored ...string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "sets.example.com", UID: "1"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Set", Plural: "sets"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{Name: "v1beta1", Served: true}, {Name: "v1beta2", Served: true, Storage: true}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: stored},
	}
}

func set(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"of": name}}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1beta2", Kind: "Set"})
	object.SetNamespace("default")
	object.SetName(name)
	return object
}

// inPages lists one object at a time, as an API server does with many.
func inPages(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	listed := client.ListOptions{}
	listed.ApplyOptions(options)
	if err := c.List(ctx, list); err != nil {
		return err
	}
	all, err := meta.ExtractList(list)
	if err != nil || len(all) == 0 {
		return err
	}
	at, _ := strconv.Atoi(listed.Continue)
	if at+1 < len(all) {
		list.SetContinue(strconv.Itoa(at + 1))
	}
	return meta.SetList(list, []runtime.Object{all[at]})
}

// CM-26: old versions are taken off the status when each object was written once as it is, and not before.
func TestMigrate(t *testing.T) {
	t.Parallel()
	group := schema.GroupResource{Group: "example.com", Resource: "sets"}
	conflict, gone := apierrors.NewConflict(group, "b", errors.New("changed")), apierrors.NewNotFound(group, "b")
	refused := apierrors.NewForbidden(group, "b", errors.New("by a webhook"))
	both := []string{"v1beta1", "v1beta2"}
	for name, test := range map[string]struct {
		stored  []string
		objects []string
		// failing is how the write of the object b fails.
		failing error
		// meanwhile the definition is written by another.
		meanwhile             bool
		written               string
		wantStored, wantError string
	}{
		"one old version":    {stored: both, objects: []string{"a", "b", "c"}, written: "a b c", wantStored: "v1beta2"},
		"only an old one":    {stored: []string{"v1beta1"}, objects: []string{"a"}, written: "a", wantStored: "v1beta2"},
		"several":            {stored: []string{"v1alpha1", "v1beta1", "v1beta2"}, objects: []string{"a"}, written: "a", wantStored: "v1beta2"},
		"no objects":         {stored: both, wantStored: "v1beta2"},
		"written by another": {stored: both, objects: []string{"a", "b", "c"}, failing: conflict, written: "a c", wantStored: "v1beta2"},
		"deleted meanwhile":  {stored: both, objects: []string{"a", "b"}, failing: gone, written: "a", wantStored: "v1beta2"},
		"refused": {stored: both, objects: []string{"a", "b", "c"}, failing: refused, written: "a c", wantStored: "v1beta1 v1beta2",
			wantError: "store all sets.example.com in version v1beta2, which may be stored in v1beta1: Set default/b: "},
		"the definition changes": {stored: both, objects: []string{"a"}, meanwhile: true, written: "a", wantStored: "v1beta1 v1beta2",
			wantError: "write down that all sets.example.com are stored in version v1beta2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var written []string
			scheme := runtime.NewScheme()
			if err := apiextensionsv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(definition(test.stored...)).WithStatusSubresource(definition())
			for _, name := range test.objects {
				builder.WithObjects(set(name))
			}
			cluster := builder.WithInterceptorFuncs(interceptor.Funcs{List: inPages,
				Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
					if o.GetName() == "b" && test.failing != nil {
						return test.failing
					}
					written = append(written, o.GetName())
					if test.meanwhile {
						changeDefinition(ctx, t, c)
					}
					if of, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "spec", "of"); of != o.GetName() {
						t.Errorf("%s is written as %v", o.GetName(), o)
					}
					return c.Update(ctx, o, options...)
				}}).Build()
			live := definition()
			if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(live), live); err != nil {
				t.Fatal(err)
			}
			err := MigrateCRD(t.Context(), cluster, live)
			if (err == nil) != (test.wantError == "") || err != nil && !strings.HasPrefix(err.Error(), test.wantError) {
				t.Errorf("error %v, want %s", err, test.wantError)
			}
			if got := strings.Join(written, " "); got != test.written {
				t.Errorf("written: %s, want %s", got, test.written)
			}
			err = cluster.Get(t.Context(), client.ObjectKeyFromObject(live), live)
			if err != nil || strings.Join(live.Status.StoredVersions, " ") != test.wantStored {
				t.Errorf("stored in %v, want %s; %v", live.Status.StoredVersions, test.wantStored, err)
			}
		})
	}
}

func changeDefinition(ctx context.Context, t *testing.T, c client.Client) {
	t.Helper()
	live := definition()
	if err := c.Get(ctx, client.ObjectKeyFromObject(live), live); err != nil {
		t.Fatal(err)
	}
	live.Annotations = map[string]string{"changed": "true"}
	if err := c.Update(ctx, live); err != nil {
		t.Fatal(err)
	}
}

// CM-26: what is stored in old versions is found, once for each version of a definition.
func TestPending(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		stored []string
		newer  bool
		want   string
		reads  int // by two calls
	}{
		"nothing old":         {stored: []string{"v1beta2"}, reads: 1},
		"an old version":      {stored: []string{"v1beta1", "v1beta2"}, want: "sets.example.com (v1beta1)", reads: 2},
		"two":                 {stored: []string{"v1alpha1", "v1beta2", "v1beta1"}, want: "sets.example.com (v1alpha1, v1beta1)", reads: 2},
		"of a newer operator": {stored: []string{"v1beta1", "v1beta2"}, newer: true},
	} {
		reads := 0
		cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(definition(test.stored...)).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				reads++
				return c.Get(ctx, key, o, options...)
			}}).Build()
		applied := definition()
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(applied), applied); err != nil {
			t.Fatal(err)
		}
		if reads = 0; test.newer {
			applied.ResourceVersion = ""
		}
		m := &Migrations{}
		for range 2 {
			pending, err := m.Pending(t.Context(), cluster, []*apiextensionsv1.CustomResourceDefinition{applied})
			if err != nil || DescribePending(pending) != test.want {
				t.Errorf("%s: %s, %v", name, DescribePending(pending), err)
			}
		}
		if reads != test.reads {
			t.Errorf("%s: %d reads", name, reads)
		}
	}
}
