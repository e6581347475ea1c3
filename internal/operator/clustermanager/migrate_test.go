package clustermanager

import (
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// CM-26: objects are migrated once the components run that convert them, and until then the status names what is left.
func TestMigrateOnceComponentsRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stored   []string
		running  bool
		wantLeft string
		want     []string
	}{
		"nothing old":         {stored: []string{"v1beta2"}, running: true, want: []string{"v1beta2"}},
		"nothing old, before": {stored: []string{"v1beta2"}, want: []string{"v1beta2"}},
		"an old version":      {stored: []string{"v1beta1", "v1beta2"}, running: true, want: []string{"v1beta2"}},
		"an old version, before": {stored: []string{"v1beta1", "v1beta2"}, wantLeft: "sets.example.com (v1beta1)",
			want: []string{"v1beta1", "v1beta2"}},
	} {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "sets.example.com"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Set"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1beta1"}, {Name: "v1beta2", Storage: true}}},
			Status: apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: test.stored}}
		hub := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(crd).WithStatusSubresource(crd).Build()
		live := &apiextensionsv1.CustomResourceDefinition{}
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(crd), live); err != nil {
			t.Fatal(err)
		}
		c := &Controller{}
		left, err := c.migrate(t.Context(), hub, []*apiextensionsv1.CustomResourceDefinition{live}, test.running)
		if err != nil || left != test.wantLeft {
			t.Errorf("%s: %q is left, want %q; %v", name, left, test.wantLeft, err)
		}
		err = hub.Get(t.Context(), client.ObjectKeyFromObject(crd), live)
		if err != nil || !slices.Equal(live.Status.StoredVersions, test.want) {
			t.Errorf("%s: stored in %v, want %v; %v", name, live.Status.StoredVersions, test.want, err)
		}
	}
}
