package binding_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/hub/registration/binding"
)

// RG-42: Bound, with the time at which its status changed.
func TestBound(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	earlier := metav1.NewTime(now.Add(-time.Hour).Local())
	scheme := runtime.NewScheme()
	if err := clusterv1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		there   bool
		before  metav1.ConditionStatus // empty for none
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"the set is there":       {true, "", "True", "ClusterSetBound", "bound"},
		"the set has come":       {true, "False", "True", "ClusterSetBound", "bound"},
		"the set is still there": {true, "True", "True", "ClusterSetBound", "bound"},
		"no set":                 {false, "", "False", "ClusterSetNotFound", `no ManagedClusterSet "s"`},
		"the set has gone":       {false, "True", "False", "ClusterSetNotFound", `no ManagedClusterSet "s"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &clusterv1beta2.ManagedClusterSetBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", Generation: 7},
				Spec:       clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: "s"},
			}
			if test.before != "" {
				b.Status.Conditions = []metav1.Condition{{Type: "Bound", Status: test.before, Reason: "Before", LastTransitionTime: earlier}}
			}
			builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(b).WithStatusSubresource(b)
			if test.there {
				builder.WithObjects(&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "s"}})
			}
			c := builder.Build()
			if _, err := binding.New(c, binding.Options{Clock: clocktesting.NewFakeClock(now)}).Reconcile(t.Context(),
				ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
				t.Fatal(err)
			}
			cond, at := meta.FindStatusCondition(b.Status.Conditions, "Bound"), now
			if test.before == test.status {
				at = earlier.Time
			}
			if cond == nil || cond.Status != test.status || cond.Reason != test.reason || !strings.Contains(cond.Message, test.message) ||
				!cond.LastTransitionTime.Time.Equal(at) || cond.ObservedGeneration != 7 {
				t.Errorf("got %+v, want %s %s %q at %s", cond, test.status, test.reason, test.message, at)
			}
		})
	}
}
