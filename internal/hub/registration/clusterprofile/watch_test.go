package clusterprofile

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// An event reads a set once, and not for each cluster or for each namespace that binds it.
func TestSetsAreReadOnce(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, clusterv1beta2.AddToScheme, multiclusterv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	const many = 5
	set := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	objects := []client.Object{set, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}}
	inSet := map[string]string{fleet.LabelClusterSet: "s"}
	var cluster *clusterv1.ManagedCluster
	var binding *clusterv1beta2.ManagedClusterSetBinding
	for i := range many {
		cluster = &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i), Labels: inSet}}
		binding = &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("n", i), Name: "s"}}
		binding.Spec.ClusterSet = "s"
		objects = append(objects, cluster, binding)
	}
	reads := 0
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			reads++
			return c.Get(ctx, key, o, options...)
		},
	}).Build()
	c := New(api, nil, Options{Clock: clock.RealClock{}})
	for name, affected := range map[string]func() ([]reconcile.Request, error){
		"a cluster": func() ([]reconcile.Request, error) { return c.ofCluster(t.Context(), cluster) },
		"a binding": func() ([]reconcile.Request, error) { return c.ofBinding(t.Context(), binding) },
	} {
		reads = 0
		if requests, err := affected(); err != nil || len(requests) != many || reads != 1 {
			t.Errorf("%s affects %v after %d reads of sets, %v; want %d profiles after one", name, requests, reads, err, many)
		}
	}
}
