package heartbeat

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/registration/hubreport"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// accepted are a cluster that the hub has accepted and its Lease, with a scheme that has both kinds.
func accepted(t *testing.T) (*runtime.Scheme, *clusterv1.ManagedCluster, *coordinationv1.Lease) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true, LeaseDurationSeconds: 60}}
	return scheme, cluster, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "managed-cluster-lease"}}
}

// RG-20: heartbeats start and end with the acceptance of the cluster, and each is one event.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	scheme, cluster, lease := accepted(t)
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, lease).Build()
	clk := clocktesting.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	var events []string
	c := New(hub, hub, Options{CheckHub: func() {},
		Record: func(eventType, reason, _, _ string, _ ...any) { events = append(events, eventType+" "+reason) }, Clock: clk})
	reconcile := func() ctrl.Result {
		t.Helper()
		result, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	for range 2 {
		if again := reconcile().RequeueAfter; again < time.Minute || again > 75*time.Second {
			t.Errorf("the next heartbeat is in %s", again)
		}
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil || !lease.Spec.RenewTime.Time.Equal(clk.Now()) {
			t.Errorf("renewed at %v, want %v; %v", lease.Spec.RenewTime, clk.Now(), err)
		}
		clk.Step(75 * time.Second)
	}
	cluster.Spec.HubAcceptsClient = false
	if err := hub.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	reconcile()
	reconcile()
	if want := []string{"Normal ManagedClusterLeaseUpdateStarted", "Warning ManagedClusterLeaseUpdateStoped"}; !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
}

// RG-20: the first heartbeat is one request, with the Lease that the hub has just returned. If another writer has changed it meanwhile, it
// is read again.
func TestFirstHeartbeat(t *testing.T) {
	t.Parallel()
	for name, changed := range map[string]bool{"as the hub returned it": false, "changed meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme, cluster, lease := accepted(t)
			reads := 0
			hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, lease).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
					if _, ok := o.(*coordinationv1.Lease); ok {
						reads++
					}
					return c.Get(ctx, key, o, options...)
				}}).Build()
			known, err := ReadLease(t.Context(), hub, cluster.Name)
			if err != nil {
				t.Fatal(err)
			}
			want := 1
			if changed {
				want = 2
				other := known.DeepCopy()
				other.Labels = map[string]string{"a": "b"}
				if err := hub.Update(t.Context(), other); err != nil {
					t.Fatal(err)
				}
			}
			c := New(hub, hub, Options{Lease: known, CheckHub: func() { t.Error("the hub is suspected") },
				Record: func(string, string, string, string, ...any) {}, Clock: clock.RealClock{}})
			request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}
			_, err = c.Reconcile(t.Context(), request)
			if changed && apierrors.IsConflict(err) {
				_, err = c.Reconcile(t.Context(), request)
			}
			if err != nil || reads != want {
				t.Errorf("the Lease was read %d times, want %d; %v", reads, want, err)
			}
			if err := hub.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil || lease.Spec.RenewTime == nil {
				t.Errorf("the Lease is not renewed: %v", err)
			}
		})
	}
}

// KL-31: a heartbeat that fails is reported to the operator, until one reaches the hub.
func TestFailureIsReported(t *testing.T) {
	t.Parallel()
	scheme, cluster, lease := accepted(t)
	failure := errors.New("dial tcp 192.0.2.1:6443: i/o timeout")
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, lease).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if failure != nil {
				return failure
			}
			return c.Update(ctx, o, options...)
		}}).Build()
	clk := clocktesting.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	configMaps := clientset.NewClientset().CoreV1().ConfigMaps("agent")
	c := New(hub, hub, Options{CheckHub: func() {}, Record: func(string, string, string, string, ...any) {}, Clock: clk,
		Report: hubreport.New(configMaps, clk)})
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}
	if _, err := c.Reconcile(t.Context(), request); err == nil {
		t.Error("the heartbeat succeeded")
	}
	report, err := configMaps.Get(t.Context(), fleet.ConfigMapHubConnection, metav1.GetOptions{})
	if err != nil || !strings.Contains(report.Data[fleet.KeyHubConnectionMessage], failure.Error()) {
		t.Errorf("the report is %v, %v", report, err)
	}
	failure = nil
	if _, err := c.Reconcile(t.Context(), request); err != nil {
		t.Error(err)
	}
	if _, err := configMaps.Get(t.Context(), fleet.ConfigMapHubConnection, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the report is still there: %v", err)
	}
}

// KL-31: a hub that does not answer at all is reported before the next heartbeat.
func TestSilenceIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		scheme, cluster, lease := accepted(t)
		hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, lease).WithInterceptorFuncs(interceptor.Funcs{
			Update: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.UpdateOption) error {
				<-ctx.Done()
				return ctx.Err()
			}}).Build()
		configMaps, began := clientset.NewClientset().CoreV1().ConfigMaps("agent"), time.Now()
		c := New(hub, hub, Options{CheckHub: func() {}, Record: func(string, string, string, string, ...any) {}, Clock: clock.RealClock{},
			Report: hubreport.New(configMaps, clock.RealClock{})})
		if _, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err == nil {
			t.Error("the heartbeat succeeded")
		}
		if took := time.Since(began); took >= time.Minute {
			t.Errorf("the agent waits for %s", took)
		}
		if _, err := configMaps.Get(t.Context(), fleet.ConfigMapHubConnection, metav1.GetOptions{}); err != nil {
			t.Errorf("the operator is not told: %v", err)
		}
	})
}
