package accept_test

import (
	"context"
	"errors"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/registration/accept"
)

const clusterLabel = "open-cluster-management.io/cluster-name"

var errStuck = errors.New("the cache never sees an object go that it never had")

// readYourWrites does as the client of the hub does with its cache of the objects that have the label of a cluster: it finds no
// others, reads the cache first for the UID of what it deletes, and does not read again before the cache has seen that go.
func readYourWrites(api client.WithWatch) client.Client {
	awaited := map[client.ObjectKey]bool{}
	cached := func(ctx context.Context, key client.ObjectKey, o client.Object) error {
		if err := api.Get(ctx, key, o); err != nil {
			return err
		}
		switch o.(type) {
		case *rbacv1.RoleBinding, *rbacv1.ClusterRoleBinding:
			if o.GetLabels()[clusterLabel] == "" {
				return apierrors.NewNotFound(rbacv1.Resource("bindings"), key.Name)
			}
		}
		return nil
	}
	return interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			if _, binding := o.(*rbacv1.RoleBinding); binding && awaited[key] {
				return errStuck
			}
			return cached(ctx, key, o)
		},
		Delete: func(ctx context.Context, _ client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if !(&client.DeleteOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency {
				err := cached(ctx, client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object))
				if err != nil && o.GetUID() == "" {
					return err
				}
				awaited[client.ObjectKeyFromObject(o)] = err != nil
			}
			return api.Delete(ctx, o)
		},
	})
}

// strip takes the labels of bindings away, so that the cache has none of them: as if a user had edited them while no hub
// ran, or as if the cache had not seen them yet.
func strip(t *testing.T, api client.Client, bindings ...client.Object) {
	t.Helper()
	for _, o := range bindings {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		o.SetLabels(nil)
		o.SetUID("uid") // as every object of an API server has one
		if err := api.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// RG-17, RG-18: the rights of a cluster go with it though the cache does not have them, and come back when it is accepted again.
func TestRightsOutsideOfTheCache(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, coordinationv1.AddToScheme,
		clusterv1.AddToScheme, workv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).WithStatusSubresource(cluster).Build()
	controller := accept.New(readYourWrites(api), api, events.NewFakeRecorder(10), accept.Options{Clock: clock.RealClock{}})
	accepted := func(yes bool) {
		t.Helper()
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			t.Fatal(err)
		}
		cluster.Spec.HubAcceptsClient = yes
		if err := api.Update(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
	}
	reconcile := func() {
		t.Helper()
		if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err != nil {
			t.Fatal(err)
		}
	}
	expectBindings := func(namespaced, global int) {
		t.Helper()
		bindings, clusterBindings := &rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleBindingList{}
		if err := errors.Join(api.List(t.Context(), bindings), api.List(t.Context(), clusterBindings)); err != nil {
			t.Fatal(err)
		}
		if len(bindings.Items) != namespaced || len(clusterBindings.Items) != global {
			t.Errorf("%d RoleBindings, want %d; %d ClusterRoleBindings, want %d", len(bindings.Items), namespaced, len(clusterBindings.Items),
				global)
		}
	}
	inNamespace := func(name string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "open-cluster-management:managedcluster:c1:" + name}}
	}
	global := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management:managedcluster:c1"}}

	accepted(true)
	reconcile()
	expectBindings(2, 1)
	strip(t, api, inNamespace("registration"), inNamespace("work"))
	accepted(false)
	reconcile()
	expectBindings(0, 1)

	accepted(true)
	reconcile()
	expectBindings(2, 1)
	strip(t, api, inNamespace("registration"), inNamespace("work"), global)
	if err := api.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	reconcile()
	expectBindings(0, 0)
}
