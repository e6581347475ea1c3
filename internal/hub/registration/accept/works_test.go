package accept_test

import (
	"context"
	"net/http"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/registration/accept"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-18: a hub that serves no works lets clusters go all the same, also if it did when it started: its operator deletes the CRD of works
// before that of clusters.
func TestReleaseWithoutWorks(t *testing.T) {
	t.Parallel()
	for name, unserved := range map[string]error{
		"never": &meta.NoKindMatchError{GroupKind: workv1.GroupVersion.WithKind("ManifestWork").GroupKind(), SearchedVersions: []string{"v1"}},
		"not any more": apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{Resource: "manifestworks"}, "",
			"404 page not found", 0, true),
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); testReleaseWithoutWorks(t, unserved) })
	}
}

func testReleaseWithoutWorks(t *testing.T, unserved error) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, coordinationv1.AddToScheme,
		clusterv1.AddToScheme, workv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	now := metav1.Now()
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", DeletionTimestamp: &now,
		Finalizers: []string{fleet.FinalizerManagedCluster}}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, works := list.(*workv1.ManifestWorkList); works {
				return unserved
			}
			return c.List(ctx, list, options...)
		},
	}).Build()
	controller := accept.New(api, api, events.NewFakeRecorder(10), accept.Options{Clock: clock.RealClock{}})
	if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err != nil {
		t.Fatal(err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); !apierrors.IsNotFound(err) {
		t.Errorf("the cluster is still there: %v, %v", cluster.Finalizers, err)
	}
}
