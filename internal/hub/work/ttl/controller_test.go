package ttl

import (
	"math"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// WK-32: which works are deleted, and when the others are looked at again.
func TestReconcile(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	complete := func(status metav1.ConditionStatus, ago time.Duration) []metav1.Condition {
		return []metav1.Condition{{Type: "Complete", Status: status, LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
	}
	seconds := func(n int64) *workv1.DeleteOption { return &workv1.DeleteOption{TTLSecondsAfterFinished: &n} }
	for name, test := range map[string]struct {
		option     *workv1.DeleteOption
		conditions []metav1.Condition
		label      string
		gone       bool
		again      time.Duration
	}{
		"due":               {option: seconds(60), conditions: complete("True", time.Minute), gone: true},
		"at once":           {option: seconds(0), conditions: complete("True", 0), gone: true},
		"not yet":           {option: seconds(60), conditions: complete("True", 20*time.Second), again: 40 * time.Second},
		"not complete":      {option: seconds(0), conditions: complete("False", time.Hour)},
		"nothing said":      {option: seconds(0)},
		"no TTL":            {option: &workv1.DeleteOption{}, conditions: complete("True", time.Hour)},
		"no option":         {conditions: complete("True", time.Hour)},
		"of a replica set":  {option: seconds(0), conditions: complete("True", time.Hour), label: "default.set"},
		"forever, in a way": {option: seconds(math.MaxInt64), conditions: complete("True", 0), again: math.MaxInt64 / time.Second * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "work", UID: "1"}}
			if test.label != "" {
				work.Labels = map[string]string{"work.open-cluster-management.io/manifestworkreplicaset": test.label}
			}
			work.Spec.DeleteOption, work.Status.Conditions = test.option, test.conditions
			scheme := runtime.NewScheme()
			if err := workv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(work).WithStatusSubresource(work).Build()
			key := client.ObjectKeyFromObject(work)
			result, err := New(c, Options{Clock: clocktesting.NewFakePassiveClock(now)}).Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			if err != nil || result.RequeueAfter != test.again {
				t.Errorf("%v, %v; want another look after %v", result, err, test.again)
			}
			err = c.Get(t.Context(), key, work)
			if gone := apierrors.IsNotFound(err); gone != test.gone {
				t.Errorf("gone: %t (%v), want %t", gone, err, test.gone)
			}
		})
	}
}
