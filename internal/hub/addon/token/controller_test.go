package token_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/token"
)

// AM-40: TokenInfrastructureReady, with the time at which its status changed. It is there for add-ons with tokens
// alone.
func TestTokenInfrastructureReady(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	earlier := metav1.NewTime(now.Add(-time.Hour).Local())
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, addonv1beta1.AddToScheme,
		clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	foreign := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello-agent"}}
	for name, test := range map[string]struct {
		driver  addonv1beta1.KubeClientDriver
		before  metav1.ConditionStatus // empty for none
		there   []client.Object
		fails   bool
		status  metav1.ConditionStatus // empty for none
		reason  string
		message string
	}{
		"made": {"token", "", nil, false, "True", "TokenInfrastructureReady",
			"ServiceAccount c1/hello-agent (UID: uid1) is ready"},
		"made after a failure":       {"token", "False", nil, false, "True", "TokenInfrastructureReady", "(UID: uid1)"},
		"it cannot be made":          {"token", "", nil, true, "False", "TokenInfrastructureApplyFailed", "no luck"},
		"it cannot be made any more": {"token", "True", nil, true, "False", "TokenInfrastructureApplyFailed", "no luck"},
		"it is another's": {"token", "", []client.Object{foreign}, true, "False", "TokenInfrastructureApplyFailed",
			"c1/hello-agent is there already"},
		"with certificates":           {"csr", "", nil, false, "", "", ""},
		"with certificates after all": {"csr", "True", nil, false, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello", UID: "1"}}
			addOn.Status.Registrations = []addonv1beta1.RegistrationConfig{{Type: addonv1beta1.KubeClient,
				KubeClient: &addonv1beta1.KubeClientConfig{Driver: test.driver}}}
			if test.before != "" {
				addOn.Status.Conditions = []metav1.Condition{{Type: "TokenInfrastructureReady", Status: test.before, Reason: "Before",
					LastTransitionTime: earlier}}
			}
			creates := interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if test.fails {
					return errors.New("no luck")
				}
				if _, account := o.(*corev1.ServiceAccount); account {
					o.SetUID("uid1")
				}
				return c.Create(ctx, o, opts...)
			}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(addOn).WithObjects(test.there...).WithStatusSubresource(addOn).
				WithInterceptorFuncs(creates).Build()
			_, err := token.New(c, token.Options{Clock: clocktesting.NewFakeClock(now)}).Reconcile(t.Context(),
				ctrl.Request{NamespacedName: client.ObjectKeyFromObject(addOn)})
			if (err != nil) != test.fails {
				t.Errorf("error %v", err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(addOn), addOn); err != nil {
				t.Fatal(err)
			}
			cond := meta.FindStatusCondition(addOn.Status.Conditions, "TokenInfrastructureReady")
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
		})
	}
}

// "Rights gone": the agent of a denied cluster makes no tokens of its add-ons, and those that it has end with their account.
func TestNoTokensForADeniedCluster(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, addonv1beta1.AddToScheme,
		clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello", UID: "1",
		Finalizers: []string{"example.com/stay"}}}
	addOn.Status.Registrations = []addonv1beta1.RegistrationConfig{{Type: addonv1beta1.KubeClient,
		KubeClient: &addonv1beta1.KubeClientConfig{Driver: "token"}}}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	cluster.Status.Conditions = []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionTrue}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(addOn, cluster).WithStatusSubresource(addOn).Build()
	controller := token.New(c, token.Options{Clock: clocktesting.NewFakeClock(time.Now())})
	steps := []struct{ accepted, deleted bool }{{true, false}, {false, false}, {true, false}, {true, true}, {false, true}}
	for _, step := range steps { // an add-on that is being deleted may need its token until it is gone, but not that of a denied cluster
		accepted := step.accepted
		cluster.Spec.HubAcceptsClient = accepted
		if err := c.Update(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		if step.deleted {
			if err := c.Delete(t.Context(), addOn); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(addOn)}); err != nil {
			t.Fatal(err)
		}
		for name, o := range map[string]client.Object{"hello-agent": &corev1.ServiceAccount{}, "hello-token-role": &rbacv1.RoleBinding{}} {
			err := c.Get(t.Context(), client.ObjectKey{Namespace: "c1", Name: name}, o)
			if client.IgnoreNotFound(err) != nil || (err == nil) != accepted {
				t.Errorf("accepted %t: %T: %v", accepted, o, err)
			}
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(addOn), addOn); err != nil {
			t.Fatal(err)
		}
		if meta.IsStatusConditionTrue(addOn.Status.Conditions, "TokenInfrastructureReady") != accepted {
			t.Errorf("accepted %t: %+v", accepted, addOn.Status.Conditions)
		}
	}
}
