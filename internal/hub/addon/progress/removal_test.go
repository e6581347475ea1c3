package progress_test

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/addon/progress"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// AF-15: an add-on whose manager has not begun with its deletion says that it waits for it, and the way out, by which it goes. What a
// manager says is left as it is.
func TestDeletionWithoutManager(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const hook, hosting = fleet.FinalizerAddOnPreDelete, fleet.FinalizerHostingManifestsCleanup
	said := func(kind string, status metav1.ConditionStatus, ago time.Duration) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: status, Reason: "Said", Message: "said",
			LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
	}
	for name, test := range map[string]struct {
		finalizers []string
		ago        time.Duration // of the deletion
		said       []metav1.Condition
		kind       string // of the condition; empty if nothing is written
		again      time.Duration
	}{
		"of hooks":              {[]string{hook}, time.Hour, nil, "HookManifestCompleted", 0},
		"of older add-ons":      {[]string{fleet.DeprecatedFinalizerAddOnPreDelete}, time.Hour, nil, "HookManifestCompleted", 0},
		"of hosted add-ons":     {[]string{hosting}, time.Hour, nil, "HostingManifestApplied", 0},
		"of both":               {[]string{hook, hosting}, time.Hour, nil, "HookManifestCompleted", 0},
		"of others":             {[]string{"example.com/stay"}, time.Hour, nil, "", 0},
		"a moment ago":          {[]string{hook}, 20 * time.Second, nil, "", 40 * time.Second},
		"its hooks run":         {[]string{hook}, time.Hour, said("HookManifestCompleted", "False", time.Minute), "", 0},
		"its hooks are done":    {[]string{hook, hosting}, time.Hour, said("HookManifestCompleted", "True", time.Minute), "", 0},
		"deployed before":       {[]string{hosting}, time.Hour, said("HostingManifestApplied", "True", 2*time.Hour), "HostingManifestApplied", 0},
		"not deployed before":   {[]string{hosting}, time.Hour, said("HostingManifestApplied", "False", 2*time.Hour), "", 0},
		"something else before": {[]string{hook}, time.Hour, said("ManifestApplied", "True", 2*time.Hour), "HookManifestCompleted", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			if err := addonv1beta1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello", Finalizers: test.finalizers,
				DeletionTimestamp: &metav1.Time{Time: now.Add(-test.ago)}}}
			addOn.Status.Conditions = test.said
			c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(addOn).WithObjects(addOn).Build()
			controller := progress.New(c, events.NewFakeRecorder(10), progress.Options{Clock: clocktesting.NewFakePassiveClock(now)})
			for range 2 { // it does not add to its own word
				result, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(addOn)})
				if err != nil || result.RequeueAfter != test.again {
					t.Fatalf("%+v, %v", result, err)
				}
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(addOn), addOn); err != nil {
				t.Fatal(err)
			}
			if test.kind == "" {
				if len(addOn.Status.Conditions) != len(test.said) || len(test.said) > 0 && addOn.Status.Conditions[0].Message != "said" {
					t.Errorf("it says %+v", addOn.Status.Conditions)
				}
				return
			}
			condition := meta.FindStatusCondition(addOn.Status.Conditions, test.kind)
			if condition == nil || condition.Status != metav1.ConditionFalse || !strings.Contains(condition.Message, test.finalizers[0]) ||
				!strings.Contains(condition.Message, "kubectl edit managedclusteraddon -n c1 hello") {
				t.Fatalf("it says %+v", addOn.Status.Conditions)
			}
			_, advised, _ := strings.Cut(condition.Message, "take off the finalizers ")
			advised, _, _ = strings.Cut(advised, ". See ")
			for _, finalizer := range strings.Split(advised, ", ") {
				controllerutil.RemoveFinalizer(addOn, finalizer)
			}
			if err := c.Update(t.Context(), addOn); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(addOn), addOn); !apierrors.IsNotFound(err) {
				t.Errorf("without the finalizers that the condition names: %v, finalizers %v", err, addOn.Finalizers)
			}
		})
	}
}
