package tokenreport_test

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

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/addon/tokenreport"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// MS-01: a token that has expired, or that nobody keeps any more, does not count as reported, although its agent cannot say so.
func TestReportIsTakenBack(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	at := func(left time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(left)} }
	theAddOn, otherAddOn := fleet.AddOnManagedServiceAccount, fleet.AddOnClusterGateway
	for name, test := range map[string]struct {
		addOn    string
		expires  *metav1.Time
		reported metav1.ConditionStatus
		message  string // nothing if the condition stays as it is
		again    time.Duration
	}{
		"valid":                  {theAddOn, at(time.Minute), metav1.ConditionTrue, "", time.Minute},
		"valid for a day":        {theAddOn, at(24 * time.Hour), metav1.ConditionTrue, "", 5 * time.Minute},
		"of no known end":        {theAddOn, nil, metav1.ConditionTrue, "", 0},
		"expires now":            {theAddOn, at(0), metav1.ConditionTrue, "the token has expired at 2026-11-23T09:00:00Z", 0},
		"has expired":            {theAddOn, at(-time.Hour), metav1.ConditionTrue, "the agent of cluster c1 has not renewed it", 0},
		"no add-on":              {otherAddOn, at(time.Hour), metav1.ConditionTrue, "managed-serviceaccount is not enabled on cluster c1", 0},
		"the agent has a reason": {theAddOn, at(-time.Hour), metav1.ConditionFalse, "", 0},
		"nothing is reported":    {otherAddOn, nil, "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{addonv1beta1.AddToScheme, authenticationv1beta1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			account := &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "ci"}}
			account.Status.ExpirationTimestamp = test.expires
			if test.reported != "" {
				account.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionTokenReported, Status: test.reported, Reason: "Before"}}
			}
			addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: test.addOn}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(account, addOn).WithStatusSubresource(account).Build()
			controller := tokenreport.New(c, tokenreport.Options{Clock: clocktesting.NewFakePassiveClock(now)})
			result, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(account)})
			if err != nil || result.RequeueAfter != test.again {
				t.Errorf("looked at again after %s, want %s: %v", result.RequeueAfter, test.again, err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(account), account); err != nil {
				t.Fatal(err)
			}
			got := meta.FindStatusCondition(account.Status.Conditions, fleet.ConditionTokenReported)
			switch {
			case test.message != "":
				if got.Status != metav1.ConditionFalse || got.Reason != "TokenReportFailed" || !strings.Contains(got.Message, test.message) {
					t.Errorf("TokenReported is %+v, want %q", got, test.message)
				}
			case test.reported == "":
				if got != nil {
					t.Errorf("TokenReported is %+v, and was not there before", got)
				}
			case got.Status != test.reported || got.Reason != "Before":
				t.Errorf("TokenReported is %+v, want it as before", got)
			}
		})
	}
}

// MS-01: what was taken back counts again when the add-on is available and the token is valid, as its agent may not report it anew. What
// the agent has reported itself stays.
func TestReportCountsAgain(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		// message is what the controller itself has written if it is empty.
		message string
		addOn   metav1.ConditionStatus // its condition; without it, there is no add-on
		later   time.Duration
		counts  bool
	}{
		"the add-on is available":     {addOn: metav1.ConditionTrue, counts: true},
		"it is not":                   {addOn: metav1.ConditionUnknown},
		"it is not there":             {},
		"the token has expired":       {addOn: metav1.ConditionTrue, later: time.Hour},
		"the agent has reported that": {addOn: metav1.ConditionTrue, message: "no right"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{addonv1beta1.AddToScheme, authenticationv1beta1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			account := &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "ci"}}
			account.Status.ExpirationTimestamp = &metav1.Time{Time: now.Add(time.Hour)}
			account.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionTokenReported, Status: metav1.ConditionTrue, Reason: "Before"}}
			if test.message != "" {
				account.Status.Conditions[0].Status, account.Status.Conditions[0].Message = metav1.ConditionFalse, test.message
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(account).WithStatusSubresource(account).Build()
			clk := clocktesting.NewFakePassiveClock(now)
			controller := tokenreport.New(c, tokenreport.Options{Clock: clk})
			reconcile := func() {
				if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(account)}); err != nil {
					t.Fatal(err)
				}
			}
			reconcile() // while the add-on is not there
			if test.addOn != "" {
				addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: fleet.AddOnManagedServiceAccount}}
				addOn.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionAvailable, Status: test.addOn}}
				if err := c.Create(t.Context(), addOn); err != nil {
					t.Fatal(err)
				}
			}
			clk.SetTime(now.Add(test.later))
			reconcile()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(account), account); err != nil {
				t.Fatal(err)
			}
			got := account.Status.Conditions[0]
			if (got.Status == metav1.ConditionTrue) != test.counts || test.message != "" && got.Message != test.message {
				t.Errorf("TokenReported is %+v", got)
			}
		})
	}
}
