package controllerclient

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capstan-io/capstan/internal/tokenaccounts"
)

// MS-04: only what is marked is found, and only what was found is deleted, not another one of the name.
func TestOnlyWhatIsMarked(t *testing.T) {
	t.Parallel()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "ci", UID: "one", Labels: tokenaccounts.Labels}}
	deleted := metav1.Preconditions{}
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(account,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "default"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "ci", Labels: tokenaccounts.Labels}},
	).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
			deleted = *new(client.DeleteOptions).ApplyOptions(options).Preconditions
			return nil
		}}).Build()
	found, err := On(api).Accounts(t.Context(), "a")
	if err != nil || len(found) != 1 || found[0].Name != "ci" {
		t.Fatalf("found %v, %v", found, err)
	}
	if err := On(api).Delete(t.Context(), &found[0]); err != nil || deleted.UID == nil || *deleted.UID != "one" {
		t.Errorf("deleted with %+v, %v", deleted, err)
	}
}
