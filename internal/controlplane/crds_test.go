package controlplane

import (
	"errors"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

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
		if !apply.Established(crd) {
			t.Errorf("%s is not established", crd.Name)
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && crd.CreationTimestamp.Sub(condition.LastTransitionTime.Time) < creationGuard {
				t.Errorf("%s was created at %s and is established since %s", crd.Name, crd.CreationTimestamp, condition.LastTransitionTime)
			}
		}
	}
}

// SC-18. A hub that was killed between the two steps of an installation takes the second when it starts again: the API
// server's own controllers do not.
func TestInterruptedInstallation(t *testing.T) {
	t.Parallel()
	want := crds.Hub()[0]
	client := fake.NewClientset()
	must(t, installCRD(t.Context(), client, want.DeepCopy(), nil))
	get := func() *apiextensionsv1.CustomResourceDefinition {
		t.Helper()
		crd, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), want.Name, metav1.GetOptions{})
		must(t, err)
		return crd
	}
	interrupted := get()
	interrupted.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue},
		{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse, Reason: "Installing"},
	}
	interrupted, err := client.ApiextensionsV1().CustomResourceDefinitions().UpdateStatus(t.Context(), interrupted, metav1.UpdateOptions{})
	must(t, err)
	must(t, installCRD(t.Context(), client, want.DeepCopy(), interrupted))
	if !apply.Established(get()) {
		t.Errorf("it is not established: %+v", get().Status)
	}
}

// SC-18: of two hubs on the same etcd that start or are upgraded at once, the second finds what the first has done.
func TestTwoInstallations(t *testing.T) {
	t.Parallel()
	want := crds.Hub()[0]
	client := fake.NewClientset()
	must(t, installCRD(t.Context(), client, want.DeepCopy(), nil))
	must(t, installCRD(t.Context(), client, want.DeepCopy(), nil)) // listed before the first one created it

	listed, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), want.Name, metav1.GetOptions{})
	must(t, err)
	want.Spec.Names.ShortNames = append(want.Spec.Names.ShortNames, "new")
	conflicts := 1
	client.PrependReactor("update", "customresourcedefinitions", func(clienttesting.Action) (bool, runtime.Object, error) {
		conflicts--
		return conflicts >= 0, nil, apierrors.NewConflict(schema.GroupResource{}, want.Name, errors.New("changed"))
	})
	must(t, installCRD(t.Context(), client, want.DeepCopy(), listed))
	updated, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), want.Name, metav1.GetOptions{})
	must(t, err)
	if !slices.Contains(updated.Spec.Names.ShortNames, "new") {
		t.Errorf("the definition is the old one: %+v", updated.Spec.Names)
	}
}
