package controlplane

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		if !established(crd) {
			t.Errorf("%s is not established", crd.Name)
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && crd.CreationTimestamp.Sub(condition.LastTransitionTime.Time) < creationGuard {
				t.Errorf("%s was created at %s and is established since %s", crd.Name, crd.CreationTimestamp, condition.LastTransitionTime)
			}
		}
	}
}
