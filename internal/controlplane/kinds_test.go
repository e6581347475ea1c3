package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// SC-16: the controllers that empty namespaces and follow owners start when it is known which kinds the hub has, also if the API server
// does not answer at first. Kinds that are not established, and versions that an aggregated API serves, need not be waited for.
func TestFindInstalled(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	must(t, apiextensionsv1.AddToScheme(scheme))
	definition := func(group string, established apiextensionsv1.ConditionStatus) *apiextensionsv1.CustomResourceDefinition {
		return &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "tests." + group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: group, Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{Name: "v1", Served: true}, {Name: "v2", Served: true}, {Name: "v3"}}},
			Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.Established, Status: established}}},
		}
	}
	api := func(version string, service *apiregistrationv1.ServiceReference) *apiregistrationv1.APIService {
		return &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: version + ".ready.test"},
			Spec:       apiregistrationv1.APIServiceSpec{Group: "ready.test", Version: version, Service: service},
		}
	}
	apis := apiregistrationfake.NewClientset(api("v1", nil), api("v2", &apiregistrationv1.ServiceReference{Namespace: "a", Name: "b"}))
	synctest.Test(t, func(t *testing.T) {
		failures := 3
		definitions := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
			definition("ready.test", apiextensionsv1.ConditionTrue), definition("unready.test", apiextensionsv1.ConditionFalse),
		).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if failures--; failures >= 0 {
					return errors.New("the storage has no leader")
				}
				return c.List(ctx, list, options...)
			},
		}).Build()
		installed, err := findInstalled(t.Context(), definitions, apis)
		must(t, err)
		var served []string
		for _, crd := range installed {
			for _, version := range crd.Spec.Versions {
				if version.Served {
					served = append(served, fmt.Sprintf("%s/%s", crd.Spec.Group, version.Name))
				}
			}
		}
		if want := []string{"ready.test/v1"}; !slices.Equal(served, want) {
			t.Errorf("it waits for %v, want %v", served, want)
		}
	})
}
