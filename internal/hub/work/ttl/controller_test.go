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
	done := func(ago time.Duration) []metav1.Condition {
		return []metav1.Condition{{Type: "Complete", Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
	}
	undone := []metav1.Condition{{Type: "Complete", Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
	noted := func(complete, seen time.Duration) string {
		return now.Add(-complete).Format(time.RFC3339) + "/" + now.Add(-seen).Format(time.RFC3339)
	}
	const day = 24 * time.Hour
	seconds := func(n int64) *workv1.DeleteOption { return &workv1.DeleteOption{TTLSecondsAfterFinished: &n} }
	for name, test := range map[string]struct {
		option     *workv1.DeleteOption
		conditions []metav1.Condition
		label      string
		noted      string
		gone       bool
		again      time.Duration
	}{
		"just seen":            {option: seconds(60), conditions: done(0), again: time.Minute},
		"due":                  {option: seconds(60), conditions: done(time.Minute), noted: noted(time.Minute, time.Minute), gone: true},
		"at once":              {option: seconds(0), conditions: done(0), gone: true},
		"not yet":              {option: seconds(60), conditions: done(day), noted: noted(day, 20*time.Second), again: 40 * time.Second},
		"a day behind":         {option: seconds(60), conditions: done(day), again: time.Minute},
		"a day behind, due":    {option: seconds(60), conditions: done(day), noted: noted(day, time.Minute), gone: true},
		"a day ahead":          {option: seconds(60), conditions: done(-day), again: time.Minute},
		"a day ahead, due":     {option: seconds(60), conditions: done(-day), noted: noted(-day, time.Minute), gone: true},
		"complete again":       {option: seconds(60), conditions: done(0), noted: noted(day, day), again: time.Minute},
		"hub's clock set back": {option: seconds(60), conditions: done(0), noted: noted(0, -day), again: time.Minute},
		"noted by somebody":    {option: seconds(60), conditions: done(0), noted: "yesterday", again: time.Minute},
		"not complete":         {option: seconds(0), conditions: undone},
		"nothing said":         {option: seconds(0)},
		"no TTL":               {option: &workv1.DeleteOption{}, conditions: done(time.Hour)},
		"no option":            {conditions: done(time.Hour)},
		"of a replica set":     {option: seconds(0), conditions: done(time.Hour), label: "default.set"},
		"forever, in a way":    {option: seconds(math.MaxInt64), conditions: done(0), again: 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "work", UID: "1"}}
			if test.label != "" {
				work.Labels = map[string]string{"work.open-cluster-management.io/manifestworkreplicaset": test.label}
			}
			if test.noted != "" {
				work.Annotations = map[string]string{"capstan.io/complete-seen": test.noted}
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

// WK-32: the TTL counts from when the hub first saw that the work is complete, whatever is written to the work meanwhile.
func TestLaterReportsDoNotPostponeTheEnd(t *testing.T) {
	t.Parallel()
	ttl := int64(60)
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "work", UID: "1"}}
	work.Spec.DeleteOption = &workv1.DeleteOption{TTLSecondsAfterFinished: &ttl}
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	behind := metav1.NewTime(now.Now().AddDate(0, 0, -1))
	work.Status.Conditions = []metav1.Condition{{Type: "Complete", Status: metav1.ConditionTrue, LastTransitionTime: behind}}
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(work).WithStatusSubresource(work).Build()
	key := client.ObjectKeyFromObject(work)
	for left := time.Minute; left >= 0; left -= 20 * time.Second {
		// A hub that starts anew knows what the one before it has seen.
		result, err := New(c, Options{Clock: now}).Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		if err != nil || result.RequeueAfter != left {
			t.Fatalf("%v, %v; want another look after %v", result, err, left)
		}
		now.SetTime(now.Now().Add(20 * time.Second))
		if left == 0 {
			break
		}
		if err := c.Get(t.Context(), key, work); err != nil {
			t.Fatal(err)
		}
		work.Status.Conditions[0].Message = now.Now().String()
		if err := c.Status().Update(t.Context(), work); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Get(t.Context(), key, work); !apierrors.IsNotFound(err) {
		t.Errorf("it is not deleted: %v", err)
	}
}
