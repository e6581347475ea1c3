package serviceaccount

import (
	"context"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// issuing is a managed cluster that issues and takes tokens of ten minutes. It calls issued for each, which says what its clock shows.
func issuing(t *testing.T, issued func() time.Time) client.WithWatch {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, _ string, _, o client.Object, _ ...client.SubResourceCreateOption) error {
			at := issued()
			o.(*authenticationv1.TokenRequest).Status.Token = string(token(t, map[string]any{
				"sub": "system:serviceaccount:" + place + ":ci", "iat": at.Unix(), "exp": at.Add(10 * time.Minute).Unix()}))
			return nil
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if review, is := o.(*authenticationv1.TokenReview); is {
				review.Status.Authenticated = true
				return nil
			}
			return c.Create(ctx, o, options...)
		},
	}).Build()
}

// hubOf is a hub with a ManagedServiceAccount.
func hubOf(t *testing.T, owner *authenticationv1beta1.ManagedServiceAccount) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, authenticationv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(owner).WithStatusSubresource(owner).Build()
}

// sessionOf is a session whose caches have what there is.
func sessionOf(c *Controller, hub client.Client) *session {
	return &session{namespace: place, hub: cached{from: hub}, managed: cached{from: c.managed}}
}

// MS-03: an agent by whose clock new tokens of the cluster are due at once requests one a minute, and says so all the time.
func TestTokensOfAClusterWithAnotherClock(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ahead   time.Duration
		problem string
		// tokens are how many have been requested after the first pass, the second, one without the Secret, another, one for a shorter
		// lifetime, and one a minute later.
		tokens [6]int
	}{
		"the same":    {0, "", [6]int{1, 1, 2, 2, 3, 3}},
		"behind":      {-9 * time.Minute, "", [6]int{1, 1, 2, 2, 3, 3}},
		"a bit ahead": {7 * time.Minute, "", [6]int{1, 1, 2, 2, 3, 4}},
		"ahead":       {9 * time.Minute, "the clock of the agent is 9m0s ahead", [6]int{1, 1, 2, 2, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokens, clock := 0, testclock.NewFakeClock(began)
			owner := &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "ci", UID: "owner"}}
			owner.Spec.Rotation.Validity.Duration = 20 * time.Minute
			hub := hubOf(t, owner)
			recorder := events.NewFakeRecorder(100)
			c := agentOf(issuing(t, func() time.Time {
				tokens++
				return clock.Now().Add(-test.ahead)
			}), "one", "a")
			c.Uncached, c.Clock, c.Recorder = hub, clock, recorder
			c.renewed, c.settled = map[string]renewal{}, map[string]settled{}
			c.ca = func() ([]byte, error) { return []byte("ca"), nil }
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "ci"}}
			for i, change := range []func() error{
				func() error { return nil }, func() error { return nil },
				func() error { return hub.Delete(t.Context(), secret) },
				func() error { return nil },
				func() error {
					owner.Spec.Rotation.Validity.Duration = 5 * time.Minute
					return hub.Update(t.Context(), owner)
				},
				func() error {
					clock.Step(lastRetry)
					return nil
				},
			} {
				if err := change(); err != nil {
					t.Fatal(err)
				}
				_, err := c.reconcileAccount(t.Context(), sessionOf(c, hub), "ci")
				if (err != nil) != (test.problem != "") || err != nil && !strings.Contains(err.Error(), test.problem) {
					t.Errorf("pass %d: %v", i, err)
				}
				if tokens != test.tokens[i] {
					t.Errorf("after pass %d, %d tokens were requested, want %d", i, tokens, test.tokens[i])
				}
				if err := hub.Get(t.Context(), client.ObjectKeyFromObject(owner), owner); err != nil {
					t.Fatal(err)
				}
				if reported := meta.FindStatusCondition(owner.Status.Conditions, fleet.ConditionTokenReported); reported == nil ||
					(reported.Status == metav1.ConditionTrue) != (test.problem == "") || !strings.Contains(reported.Message, test.problem) {
					t.Errorf("after pass %d, the condition is %+v", i, reported)
				}
				if owner.Status.TokenSecretRef == nil || owner.Status.ExpirationTimestamp == nil ||
					!meta.IsStatusConditionTrue(owner.Status.Conditions, fleet.ConditionSecretCreated) {
					t.Errorf("after pass %d, the status does not know the Secret: %+v", i, owner.Status)
				}
			}
			close(recorder.Events)
			for event := range recorder.Events {
				if strings.HasPrefix(event, corev1.EventTypeWarning) != (test.problem != "") {
					t.Errorf("there is the event %q", event)
				}
			}
		})
	}
}

// MS-03: a token is replaced soon after it is due, though timers stand still while a machine is suspended: it is looked at every few
// minutes, which takes no requests unless something has changed.
func TestLooksWithoutRequests(t *testing.T) {
	t.Parallel()
	requests, clock, ca := 0, testclock.NewFakeClock(began), "ca"
	owner := &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "ci", UID: "owner"}}
	owner.Spec.Rotation.Validity.Duration = 24 * time.Hour
	hub := hubOf(t, owner)
	issuer := issuing(t, func() time.Time {
		requests++
		return clock.Now()
	})
	c := agentOf(interceptor.NewClient(issuer, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, is := o.(*authenticationv1.TokenReview); is {
				requests++
			}
			return c.Create(ctx, o, options...)
		},
	}), "one", "a")
	c.Uncached, c.Clock, c.Recorder = hub, clock, events.NewFakeRecorder(100)
	c.renewed, c.settled = map[string]renewal{}, map[string]settled{}
	c.ca = func() ([]byte, error) { return []byte(ca), nil }
	pass := func() (made int, again time.Duration) {
		t.Helper()
		before := requests
		result, err := c.reconcileAccount(t.Context(), sessionOf(c, hub), "ci")
		if err != nil {
			t.Fatal(err)
		}
		return requests - before, result.RequeueAfter
	}
	onHub, there := metav1.ObjectMeta{Namespace: "c1", Name: "ci"}, metav1.ObjectMeta{Namespace: place, Name: "ci"}
	annotate := func(api client.Client, o client.Object) {
		t.Helper()
		change := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"by":"somebody"}}}`))
		if err := api.Patch(t.Context(), o, change); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(){
		"the ManagedServiceAccount": func() { annotate(hub, &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: onHub}) },
		"the Secret":                func() { annotate(hub, &corev1.Secret{ObjectMeta: onHub}) },
		"the service account":       func() { annotate(c.managed, &corev1.ServiceAccount{ObjectMeta: there}) },
		"the authority":             func() { ca += "-" },
		"the time":                  func() { clock.Step(20 * time.Hour) },
		"perhaps the keys":          func() { clock.Step(reviewInterval) },
		"what the hub reports": func() {
			change := client.RawPatch(types.MergePatchType, []byte(
				`{"status":{"conditions":[{"type":"TokenReported","status":"False","reason":"TokenReportFailed","lastTransitionTime":null}]}}`))
			if err := hub.Status().Patch(t.Context(), &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: onHub}, change); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for range 3 { // each of what it changes is an event
			pass()
		}
		clock.Step(time.Minute)
		if made, again := pass(); made > 0 || again > 5*time.Minute {
			t.Errorf("when nothing has changed, %d requests are made, and it is looked at again after %s", made, again)
		}
		change()
		if made, _ := pass(); made == 0 {
			t.Errorf("when %s has changed, no requests are made", name)
		}
		now := &authenticationv1beta1.ManagedServiceAccount{}
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(owner), now); err != nil ||
			!meta.IsStatusConditionTrue(now.Status.Conditions, fleet.ConditionTokenReported) {
			t.Errorf("when %s has changed, the status is %+v, %v", name, now.Status, err)
		}
	}
}
