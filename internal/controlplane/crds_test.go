package controlplane

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/internal/apply"
)

// SC-18. A hub that is ready takes objects of its kinds at once: the API server holds back those of a kind that was
// established less than creationGuard ago.
func TestKindsAreReadyAtOnce(t *testing.T) {
	t.Parallel()
	client, err := apiextensionsclient.NewForConfig(shared.config)
	must(t, err)
	for _, want := range shared.options.CRDs {
		crd, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), want.Name, metav1.GetOptions{})
		must(t, err)
		if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			t.Errorf("%s is not established", crd.Name)
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && crd.CreationTimestamp.Sub(condition.LastTransitionTime.Time) < creationGuard {
				t.Errorf("%s was created at %s and is established since %s", crd.Name, crd.CreationTimestamp, condition.LastTransitionTime)
			}
		}
	}
}

// SC-18. A hub that starts again with the same definitions writes none of them.
func TestInstalledAgain(t *testing.T) {
	t.Parallel()
	cluster, err := apply.NewCRDClient(shared.config)
	must(t, err)
	refused := errors.New("it is as it should be")
	readOnly := interceptor.NewClient(cluster, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return refused },
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return refused },
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			return refused
		},
	})
	for _, crd := range crds.Hub() {
		if err := installCRD(t.Context(), readOnly, crd); err != nil {
			t.Error(err)
		}
	}
}

// SC-18. A hub that was killed between the two steps of an installation takes the second when it starts again: the API
// server's own controllers do not.
func TestInterruptedInstallation(t *testing.T) {
	t.Parallel()
	want := crds.Hub()[0]
	scheme := runtime.NewScheme()
	must(t, apiextensionsv1.AddToScheme(scheme))
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(want).Build()
	must(t, installCRD(t.Context(), cluster, want.DeepCopy()))
	get := func() *apiextensionsv1.CustomResourceDefinition {
		t.Helper()
		crd := &apiextensionsv1.CustomResourceDefinition{}
		must(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(want), crd))
		return crd
	}
	interrupted := get()
	interrupted.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue},
		{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse, Reason: "Installing"},
	}
	must(t, cluster.Status().Update(t.Context(), interrupted))
	must(t, installCRD(t.Context(), cluster, want.DeepCopy()))
	if !apihelpers.IsCRDConditionTrue(get(), apiextensionsv1.Established) {
		t.Errorf("it is not established: %+v", get().Status)
	}
}

// SC-18. A kind that the API server's controllers establish at the same moment is established since before all the same.
func TestEstablishedAtTheSameMoment(t *testing.T) {
	t.Parallel()
	want := crds.Hub()[0]
	scheme := runtime.NewScheme()
	must(t, apiextensionsv1.AddToScheme(scheme))
	now, first := time.Now(), true
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(want).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, subresource string, o client.Object,
			options ...client.SubResourceUpdateOption) error {
			if first {
				first = false
				crd := &apiextensionsv1.CustomResourceDefinition{}
				must(t, c.Get(ctx, client.ObjectKeyFromObject(o), crd))
				crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established,
					Status: apiextensionsv1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}}
				must(t, c.SubResource(subresource).Update(ctx, crd))
			}
			return c.SubResource(subresource).Update(ctx, o, options...)
		},
	}).Build()
	must(t, installCRD(t.Context(), cluster, want.DeepCopy()))
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(want), crd))
	condition := apihelpers.FindCRDCondition(crd, apiextensionsv1.Established)
	if first || condition == nil || now.Sub(condition.LastTransitionTime.Time) < creationGuard {
		t.Errorf("at %s, it is established by %+v", now, condition)
	}
}

// SC-18. Objects that may be stored in a version that goes are migrated although the API server, which has just started, does not
// publish their kind at first.
func TestKindIsNotServedYet(t *testing.T) {
	t.Parallel()
	want := crds.Hub()[0]
	have := want.DeepCopy()
	former := *have.Spec.Versions[0].DeepCopy()
	former.Name, former.Storage = "v0", false
	have.Spec.Versions = append(have.Spec.Versions, former)
	have.Status.StoredVersions = []string{"v0"}
	scheme := runtime.NewScheme()
	must(t, apiextensionsv1.AddToScheme(scheme))
	unserved := 2
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(want).WithObjects(have).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if unserved--; unserved >= 0 {
				return &meta.NoKindMatchError{}
			}
			return c.List(ctx, list, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			live := &apiextensionsv1.CustomResourceDefinition{}
			must(t, c.Get(ctx, client.ObjectKeyFromObject(want), live))
			if slices.Contains(live.Status.StoredVersions, "v0") { // as an API server does
				return apierrors.NewInvalid(apply.CRDs.GroupKind(), live.Name, field.ErrorList{
					field.Invalid(field.NewPath("status", "storedVersions").Index(0), "v0", "must appear in spec.versions")})
			}
			return c.Update(ctx, o, options...)
		},
	}).Build()
	must(t, installCRD(t.Context(), cluster, want.DeepCopy()))
	live := &apiextensionsv1.CustomResourceDefinition{}
	must(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(want), live))
	if len(live.Spec.Versions) != len(want.Spec.Versions) || slices.Contains(live.Status.StoredVersions, "v0") {
		t.Errorf("it has %d versions and objects may be stored in %v", len(live.Spec.Versions), live.Status.StoredVersions)
	}
}

// A hub reports which kinds are missing once, and so names them in the same order each time.
func TestMissingKindsAreInOrder(t *testing.T) {
	t.Parallel()
	missing := map[schema.GroupVersionResource]bool{}
	for _, version := range []string{"v3", "v1", "v5", "v2", "v4"} {
		missing[schema.GroupVersionResource{Group: "tests.test", Version: version, Resource: "tests"}] = true
	}
	const want = "tests.v1.tests.test, tests.v2.tests.test, tests.v3.tests.test, tests.v4.tests.test, tests.v5.tests.test"
	if got := inOrder(missing); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
