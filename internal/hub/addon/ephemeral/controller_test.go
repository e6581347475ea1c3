package ephemeral_test

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/addon/ephemeral"
)

// MS-05
func TestTimeIsOver(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		ttl   *int32
		after time.Duration
		left  time.Duration
		gone  bool
	}{
		"no end":      {nil, 100 * time.Hour, 0, false},
		"long before": {ptr.To[int32](3600), time.Minute, 5 * time.Minute, false},
		"not yet":     {ptr.To[int32](60), 59 * time.Second, time.Second, false},
		"now":         {ptr.To[int32](60), time.Minute, 0, true},
		"long since":  {ptr.To[int32](60), time.Hour, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			if err := authenticationv1beta1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			account := &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{
				Namespace: "c1", Name: "ci", UID: "1", CreationTimestamp: metav1.NewTime(created)}}
			account.Spec.TTLSecondsAfterCreation = test.ttl
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(account).Build()
			controller := ephemeral.New(c, ephemeral.Options{Clock: clocktesting.NewFakePassiveClock(created.Add(test.after))})
			result, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(account)})
			if err != nil || result.RequeueAfter != test.left {
				t.Errorf("%v, %v", result, err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(account), account); apierrors.IsNotFound(err) != test.gone {
				t.Errorf("gone %t, want %t: %v", apierrors.IsNotFound(err), test.gone, err)
			}
		})
	}
}
