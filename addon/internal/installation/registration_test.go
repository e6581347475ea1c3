package installation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// AF-03, AF-11: RegistrationApplied, with the time at which its status changed.
func TestRegistrationApplied(t *testing.T) {
	t.Parallel()
	earlier := metav1.NewTime(now.Add(-time.Hour).Local())
	registers := func(permissions error) *addon.Registration {
		return &addon.Registration{
			Configs: func(_ context.Context, i addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
				return []addonv1beta1.RegistrationConfig{addon.KubeClient(i, "a")}, nil
			},
			Permissions: func(context.Context, addon.Installation) ([]client.Object, error) { return nil, permissions },
		}
	}
	forOthers := &addon.Registration{Configs: func(context.Context, addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
		return []addonv1beta1.RegistrationConfig{{Type: addonv1beta1.KubeClient,
			KubeClient: &addonv1beta1.KubeClientConfig{Subject: addonv1beta1.KubeClientSubject{User: "system:admin"}}}}, nil
	}}
	for name, test := range map[string]struct {
		registration *addon.Registration
		before       metav1.ConditionStatus // empty for none
		status       metav1.ConditionStatus // empty for none
		reason       string
		message      string
		fails        bool
	}{
		"it does not register":         {nil, "", "True", "NilRegistration", "does not register", false},
		"it registers":                 {registers(nil), "", "True", "SetPermissionApplied", "configured", false},
		"it registers after a failure": {registers(nil), "False", "True", "SetPermissionApplied", "configured", false},
		"it registers still":           {registers(nil), "True", "True", "SetPermissionApplied", "configured", false},
		"its rights cannot be given":   {registers(errors.New("no luck")), "True", "False", "SetPermissionFailed", "no luck", true},
		"its rights wait for its identity": {registers(addon.ErrSubjectNotReady), "", "False", "PermissionConfigPending", "not known yet",
			false},
		"its identity is another's":            {forOthers, "", "False", "SetPermissionFailed", "system:admin", true},
		"it does not know yet":                 {registers(addon.ErrNotYet), "", "", "", "", false},
		"it does not know yet, and was set up": {registers(addon.ErrNotYet), "True", "True", "Before", "", false},
		"it does not know yet, and was refused": {registers(addon.ErrNotYet), "False", "False", "PermissionConfigPending",
			"when a rollout reaches the cluster", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, cluster("c1"), installed(func(a *addonv1beta1.ManagedClusterAddOn) {
				if test.before != "" {
					a.Status.Conditions = []metav1.Condition{{Type: "RegistrationApplied", Status: test.before, Reason: "Before",
						LastTransitionTime: earlier}}
				}
			}))
			h.agent.options.Registration = test.registration
			if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); (err != nil) != test.fails {
				t.Errorf("error %v", err)
			}
			at := now
			if test.before == test.status {
				at = earlier.Time
			}
			cond := h.condition(t, "RegistrationApplied")
			if cond.Status != test.status || cond.Reason != test.reason || !strings.Contains(cond.Message, test.message) || test.status != "" &&
				!cond.LastTransitionTime.Time.Equal(at) {
				t.Errorf("got %+v, want %s %s %q at %s", cond, test.status, test.reason, test.message, at)
			}
		})
	}
}

// A manager that may not bind the roles of an add-on says which right it lacks, and who it is.
func TestRightToBind(t *testing.T) {
	t.Parallel()
	for kind, right := range map[string]string{
		"ClusterRole": `bind on clusterroles of rbac.authorization.k8s.io named "reader", by a ClusterRoleBinding`,
		"Role":        `bind on roles of rbac.authorization.k8s.io named "reader", in the namespace c1`,
	} {
		h := newHub(t, cluster("c1"), installed())
		h.refuseBindings = apierrors.NewForbidden(rbacv1.Resource("rolebindings"), "b", errors.New("not by you"))
		h.agent.options.Registration = &addon.Registration{
			Configs: func(context.Context, addon.Installation) ([]addonv1beta1.RegistrationConfig, error) { return nil, nil },
			Permissions: func(context.Context, addon.Installation) ([]client.Object, error) {
				return []client.Object{&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"},
					RoleRef: rbacv1.RoleRef{Kind: kind, Name: "reader"}}}, nil
			},
		}
		if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: error %v", kind, err)
		}
		message := h.condition(t, "RegistrationApplied").Message
		for _, want := range []string{"not by you", right, "addon-manager-controller-sa", "open-cluster-management-hub"} {
			if !strings.Contains(message, want) {
				t.Errorf("%s: no %q in %q", kind, want, message)
			}
		}
	}
}
