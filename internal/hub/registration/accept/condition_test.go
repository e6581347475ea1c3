package accept_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/registration/accept"
)

func schemeOf(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, rbacv1.AddToScheme, coordinationv1.AddToScheme, clusterv1.AddToScheme, workv1.AddToScheme, addonv1beta1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// RG-16, RG-17, RG-22: HubAcceptedManagedCluster, after failures, too. It has the time at which its status changed, and an
// event is of a decision. With acceptance, the clocks are synced.
func TestHubAccepted(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	earlier := metav1.NewTime(now.Add(-time.Hour).Local())
	const isTrue, isFalse = metav1.ConditionTrue, metav1.ConditionFalse
	noLuck, raced := errors.New("no luck"), apierrors.NewConflict(schema.GroupResource{Resource: "clusterroles"}, "c1",
		errors.New("it has changed"))
	for name, test := range map[string]struct {
		accepted bool
		before   metav1.ConditionStatus // of the condition; empty for none
		fails    error                  // of writes of roles and bindings
		status   metav1.ConditionStatus // afterwards; empty for none
		reason   string
		message  string
		event    string
	}{
		"not decided":                 {false, "", nil, "", "", "", ""},
		"accepted":                    {true, "", nil, isTrue, "HubClusterAdminAccepted", "Accepted", "Normal ManagedClusterAccepted"},
		"accepted, which fails":       {true, "", noLuck, isFalse, "Error", "could not set up the cluster and tries again: ", ""},
		"accepted again, which fails": {true, isTrue, noLuck, isFalse, "Error", "could not set up the cluster and tries again: ", ""},
		"accepted again": {true, isFalse, nil, isTrue, "HubClusterAdminAccepted", "Accepted",
			"Normal ManagedClusterAccepted"},
		"denied": {false, isTrue, nil, isFalse, "HubClusterAdminDenied", "Denied", "Normal ManagedClusterDenied"},
		"denied, which fails": {false, isTrue, noLuck, isFalse, "Error",
			"is denied; the hub could not take its rights away and tries again: ", ""},
		"denied, when acceptance had failed": {false, isFalse, nil, isFalse, "HubClusterAdminDenied", "Denied",
			"Normal ManagedClusterDenied"},
		"accepted, and another writer is faster": {true, isTrue, raced, isTrue, "Before", "", ""},
		"denied, and another writer is faster":   {false, isTrue, raced, isTrue, "Before", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"},
				Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: test.accepted}}
			if test.before != "" {
				cluster.Status.Conditions = []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: test.before, Reason: "Before",
					LastTransitionTime: earlier}}
			}
			failing := interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if _, role := o.(*rbacv1.ClusterRole); role && test.fails != nil && o.GetName() == "open-cluster-management:managedcluster:c1" {
						return test.fails
					}
					return c.Create(ctx, o, opts...)
				},
			}
			c := fake.NewClientBuilder().WithScheme(schemeOf(t)).WithObjects(cluster).WithStatusSubresource(cluster).WithInterceptorFuncs(failing).
				Build()
			recorder := events.NewFakeRecorder(10)
			controller := accept.New(c, c, recorder, accept.Options{Clock: clocktesting.NewFakeClock(now)})
			_, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
			if !errors.Is(err, test.fails) {
				t.Errorf("error %v", err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
				t.Fatal(err)
			}
			cond := meta.FindStatusCondition(cluster.Status.Conditions, "HubAcceptedManagedCluster")
			if test.status == "" {
				if cond != nil {
					t.Errorf("it says %+v", cond)
				}
				return
			}
			at := now
			if test.before == test.status {
				at = earlier.Time
			}
			if cond == nil || cond.Status != test.status || cond.Reason != test.reason || !strings.Contains(cond.Message, test.message) ||
				!cond.LastTransitionTime.Time.Equal(at) {
				t.Errorf("got %+v, want %s %s %q at %s", cond, test.status, test.reason, test.message, at)
			}
			synced := meta.FindStatusCondition(cluster.Status.Conditions, "ManagedClusterConditionClockSynced")
			if (synced != nil) != (test.reason == "HubClusterAdminAccepted") || synced != nil &&
				(synced.Status != isTrue || synced.Reason != "ManagedClusterClockSynced" || !synced.LastTransitionTime.Time.Equal(now)) {
				t.Errorf("of the clocks it says %+v", synced)
			}
			var event string
			select {
			case event = <-recorder.Events:
			default:
			}
			if (event == "") != (test.event == "") || !strings.HasPrefix(event, test.event) {
				t.Errorf("event %q, want %q", event, test.event)
			}
		})
	}
}

// RG-22: a cluster whose clock is off is accepted again without a word about that.
func TestAcceptedWithAClockThatIsOff(t *testing.T) {
	t.Parallel()
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	cluster.Status.Conditions = []metav1.Condition{
		{Type: "ManagedClusterConditionClockSynced", Status: metav1.ConditionFalse, Reason: "Before"}}
	c := fake.NewClientBuilder().WithScheme(schemeOf(t)).WithObjects(cluster).WithStatusSubresource(cluster).Build()
	controller := accept.New(c, c, events.NewFakeRecorder(10), accept.Options{Clock: clocktesting.NewFakeClock(time.Now())})
	if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
		t.Fatal(err)
	}
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, "HubAcceptedManagedCluster") ||
		!meta.IsStatusConditionFalse(cluster.Status.Conditions, "ManagedClusterConditionClockSynced") {
		t.Errorf("conditions %+v", cluster.Status.Conditions)
	}
}
