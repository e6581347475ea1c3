package accept_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/registration/accept"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// refuseInTerminating answers writes of new objects as an API server does in a namespace that is being deleted.
var refuseInTerminating = interceptor.Funcs{
	Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		namespace := &corev1.Namespace{}
		if o.GetNamespace() != "" && c.Get(ctx, client.ObjectKey{Name: o.GetNamespace()}, namespace) == nil &&
			!namespace.DeletionTimestamp.IsZero() {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden,
				Reason: metav1.StatusReasonForbidden, Message: "it is being terminated",
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}}}
		}
		return c.Create(ctx, o, opts...)
	},
}

// RG-18: the namespace of a cluster that a user deletes goes, once the agent has finished the works, and comes back with all that the
// cluster has there. No finalizer of the hub holds it, whatever was decided about the cluster.
func TestNamespaceIsDeleted(t *testing.T) {
	t.Parallel()
	for name, accepted := range map[string]bool{"accepted": true, "denied": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"},
				Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
			c := fake.NewClientBuilder().WithScheme(schemeOf(t)).WithObjects(cluster).WithStatusSubresource(cluster).
				WithInterceptorFuncs(refuseInTerminating).Build()
			controller := accept.New(c, c, events.NewFakeRecorder(10), accept.Options{Clock: clocktesting.NewFakeClock(time.Unix(1000, 0))})
			reconcile := func() ctrl.Result {
				t.Helper()
				result, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
					t.Fatal(err)
				}
				return result
			}
			reconcile()
			work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "web",
				Finalizers: []string{fleet.FinalizerManifestWorkCleanup}}}
			if err := c.Create(t.Context(), work); err != nil {
				t.Fatal(err)
			}
			namespace := terminate(t, c, "c1")
			cluster.Spec.HubAcceptsClient = accepted
			if err := c.Update(t.Context(), cluster); err != nil {
				t.Fatal(err)
			}

			if result := reconcile(); result.RequeueAfter == 0 {
				t.Error("nothing asks whether the works have gone")
			}
			binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: fleet.WorkRoleBinding("c1")}}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(binding), binding); err != nil {
				t.Errorf("while there is a work: %v", err)
			}
			condition := meta.FindStatusCondition(cluster.Status.Conditions, fleet.ConditionHubAccepted)
			if condition.Status != metav1.ConditionFalse || accepted && (!strings.Contains(condition.Message, "Namespace c1 is being deleted") ||
				!strings.Contains(condition.Message, "capstan delete work NAME --clusters c1 --force")) {
				t.Errorf("it says %+v", condition)
			}

			if err := c.Get(t.Context(), client.ObjectKeyFromObject(work), work); err != nil {
				t.Fatal(err)
			}
			if err := patch.RemoveFinalizer(t.Context(), c, work, fleet.FinalizerManifestWorkCleanup); err != nil {
				t.Fatal(err)
			}
			if result := reconcile(); result.RequeueAfter != 0 {
				t.Errorf("without works: %+v", result)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(binding), binding); !apierrors.IsNotFound(err) {
				t.Errorf("without works: %v, %v", binding.Finalizers, err)
			}

			namespace.Finalizers = nil
			if err := c.Update(t.Context(), namespace); err != nil {
				t.Fatal(err)
			}
			reconcile()
			for _, o := range []client.Object{namespace, binding, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "c1",
				Name: fleet.ClusterNamespaceLease}}} {
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); (err == nil) != accepted {
					t.Errorf("%T afterwards: %v", o, err)
				}
			}
			if meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionHubAccepted) != accepted {
				t.Errorf("afterwards it says %+v", cluster.Status.Conditions)
			}
		})
	}
}

// terminate deletes a namespace, and the objects in it that no finalizer holds, as Kubernetes does.
func terminate(t *testing.T, c client.Client, name string) *corev1.Namespace {
	t.Helper()
	namespace := &corev1.Namespace{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, namespace); err != nil {
		t.Fatal(err)
	}
	namespace.Finalizers = []string{"kubernetes.io/kubernetes"}
	if err := c.Update(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{&rbacv1.RoleBinding{}, &coordinationv1.Lease{}, &workv1.ManifestWork{}} {
		if err := c.DeleteAllOf(t.Context(), o, client.InNamespace(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, namespace); err != nil {
		t.Fatal(err)
	}
	return namespace
}
