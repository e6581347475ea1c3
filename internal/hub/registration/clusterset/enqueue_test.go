package clusterset

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
)

// RG-40: the members of a set are counted once for all clusters that join it or leave it within a moment, and not for others.
func TestManyJoinAtOnce(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := clusterv1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	set := func(name string) *clusterv1beta2.ManagedClusterSet {
		return &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	c := New(fake.NewClientBuilder().WithScheme(scheme).WithObjects(set("a"), set("b")).Build(), Options{})
	in := labels.Set{"cluster.open-cluster-management.io/clusterset": "a"}
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer synctest.Wait()
		defer q.ShutDown()
		began := time.Now()
		for range 3 {
			c.enqueue(t.Context(), q, in, nil)
			c.enqueue(t.Context(), q, nil, in)
			c.enqueue(t.Context(), q, in, in)
		}
		first, _ := q.Get()
		q.Done(first)
		if synctest.Wait(); first.Name != "a" || time.Since(began) != countDelay || q.Len() > 0 {
			t.Errorf("counts %s and %d more after %s", first.Name, q.Len(), time.Since(began))
		}
	})
}
