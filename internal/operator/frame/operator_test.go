package frame

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apply"
)

// KL-04: what changes in a namespace has the custom resources reconciled that depend on it, and not those of all other clusters. On the
// namespace of the operator all do.
func TestDependents(t *testing.T) {
	t.Parallel()
	named := func(name string) client.Object {
		return &operatorv1.Klusterlet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	o := &Operator{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(named("a"), named("b")).Build(),
		Options: Options{Namespace: "operator"}, kind: operatorv1.GroupVersion.WithKind("Klusterlet"),
		namespaces: func(resource client.Object) []string { return []string{"shared", "of-" + resource.GetName()} }}
	for namespace, want := range map[string][]string{
		"of-a": {"a"}, "of-b": {"b"}, "shared": {"a", "b"}, "operator": {"a", "b"}, "other": nil,
	} {
		var got []string
		for _, request := range o.those(t.Context(), o.dependsOn(namespace)) {
			got = append(got, request.Name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("of the namespace %s: %v, want %v", namespace, got, want)
		}
	}
}

// KL-04: a cluster that keeps a connection open and does not answer keeps a reconcile for some seconds alone.
func TestSilentCluster(t *testing.T) {
	t.Parallel()
	o := &Operator{Management: &apply.Cluster{Client: fake.NewClientBuilder().WithScheme(Scheme()).Build()}}
	silent := &apply.Cluster{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			<-ctx.Done()
			return ctx.Err()
		}}).Build()}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), reconcileTimeout)
		defer cancel()
		since := time.Now()
		own, err := o.IsOwn(ctx, silent, "kubeconfig")
		if took := time.Since(since); own || !errors.Is(err, context.DeadlineExceeded) || took != answerTimeout {
			t.Errorf("own: %t, %v after %s", own, err, took)
		}
	})
}
