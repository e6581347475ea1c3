package installation

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// rolesAndBindings are one permission of each kind, and a binding to another role, with the same rules or subjects.
func rolesAndBindings(about metav1.ObjectMeta, verb, subject, otherRole string) []client.Object {
	named := func(namespace, name string) metav1.ObjectMeta {
		o := *about.DeepCopy()
		o.Namespace, o.Name = namespace, name
		return o
	}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{verb}}}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: subject}}
	ref := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	return []client.Object{
		&rbacv1.Role{ObjectMeta: named("c1", "role"), Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: named("c1", "binding"), RoleRef: ref("reader"), Subjects: subjects},
		&rbacv1.RoleBinding{ObjectMeta: named("c1", "other"), RoleRef: ref(otherRole), Subjects: subjects},
		&rbacv1.ClusterRole{ObjectMeta: named("", "c1-hello"), Rules: rules},
		&rbacv1.ClusterRoleBinding{ObjectMeta: named("", "c1-hello"), RoleRef: ref("reader"), Subjects: subjects},
	}
}

// AF-10: a permission that another manager of the add-on has left becomes one of this manager, and nothing in it stays as it was: a label
// that aggregates roles would give the rights of the add-on to others. What is not of the add-on stays, and keeps no other right from being
// given or taken.
func TestPermissionsOfAnotherManager(t *testing.T) {
	t.Parallel()
	of := func(addOn string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Labels: map[string]string{fleet.LabelAddOnName: addOn, fleet.LabelClusterName: "c1", fleet.LabelAddOnManager: "addon-templates",
				"rbac.authorization.k8s.io/aggregate-to-edit": "true"},
			Annotations: map[string]string{"rbac.authorization.kubernetes.io/autoupdate": "true"},
		}
	}
	ownedBy := func(uid types.UID) metav1.ObjectMeta {
		return metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: addonv1beta1.GroupVersion.String(),
			Kind: "ManagedClusterAddOn", Name: "hello", UID: uid}}}
	}
	for name, test := range map[string]struct {
		left    metav1.ObjectMeta
		adopted bool
	}{
		"with the labels of the add-on":   {of("hello"), true},
		"owned by the add-on":             {ownedBy("1"), true},
		"with the labels of another":      {of("other"), false},
		"owned by one that has gone":      {ownedBy("2"), false},
		"made by somebody for themselves": {metav1.ObjectMeta{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dropped := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "dropped"}}
			added := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "added"}}
			permissions := []client.Object{dropped.DeepCopy()}
			h := hubWithPermissions(t, &permissions)
			h.reconcile(t)
			for _, o := range rolesAndBindings(test.left, "*", "mallory", "other") {
				if o.GetName() != "other" { // which could not be made anew before somebody takes it off
					o.SetFinalizers([]string{"example.com/stay"})
				}
				if err := h.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			permissions = append(rolesAndBindings(metav1.ObjectMeta{}, "get", "agent", "reader"), added.DeepCopy())
			_, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			if h.exists(t, dropped.DeepCopy()) || !h.exists(t, added.DeepCopy()) {
				t.Error("the other rights are not those that are wanted")
			}
			if !test.adopted {
				h.expectOfOthers(t, err, permissions[:5])
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			h.expectOurs(t, permissions[:5])
			permissions = nil
			h.reconcile(t)
			for _, o := range rolesAndBindings(metav1.ObjectMeta{}, "", "", "") {
				if h.exists(t, o) {
					t.Errorf("%s is not this manager's to delete", identify(o))
				}
			}
		})
	}
}

// AF-10: former rights stay until what has the name of a new one, and is being deleted, is gone.
func TestPermissionsWaitForDeletions(t *testing.T) {
	t.Parallel()
	ours := func(manager string) map[string]string {
		return map[string]string{fleet.LabelAddOnName: "hello", fleet.LabelClusterName: "c1", fleet.LabelAddOnManager: manager}
	}
	for name, labels := range map[string]map[string]string{
		"of this manager": ours("test"), "of another manager": ours("addon-templates"), "of somebody else": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			binding := func(name, role string) *rbacv1.RoleBinding {
				about := metav1.ObjectMeta{Namespace: "c1", Name: name}
				return &rbacv1.RoleBinding{ObjectMeta: about, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: role}}
			}
			former, goes := binding("former", "reader"), binding("later", "other")
			permissions := []client.Object{former.DeepCopy()}
			h := hubWithPermissions(t, &permissions)
			h.reconcile(t)
			goes.Labels, goes.Finalizers = labels, []string{"example.com/stay"}
			if err := errors.Join(h.Create(t.Context(), goes), h.Delete(t.Context(), goes)); err != nil {
				t.Fatal(err)
			}
			permissions = []client.Object{binding("later", "reader")}
			if _, err := h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); !apierrors.IsAlreadyExists(err) {
				t.Errorf("error %v", err)
			}
			if !h.exists(t, former.DeepCopy()) {
				t.Error("rights go before those that are to replace them can be given")
			}
			if !h.exists(t, goes) {
				t.Fatal("the finalizer does not keep it")
			}
			goes.Finalizers = nil
			if err := h.Update(t.Context(), goes); err != nil {
				t.Fatal(err)
			}
			h.reconcile(t)
			later := binding("later", "")
			if h.exists(t, former.DeepCopy()) || !h.exists(t, later) || later.RoleRef.Name != "reader" {
				t.Errorf("the former rights are left, or the new one is %+v", later)
			}
		})
	}
}

// AF-10: a role that somebody has made before, with the labels of this manager, gives the rights of the add-on to nobody else.
func TestPermissionsAreNotAggregated(t *testing.T) {
	t.Parallel()
	const aggregate, other = "rbac.authorization.k8s.io/aggregate-to-edit", "example.com/other"
	wanted := map[string]string{fleet.LabelAddOnName: "hello", fleet.LabelClusterName: "c1", fleet.LabelAddOnManager: "test", other: "kept"}
	with := func(all map[string]string, more string) map[string]string {
		all = maps.Clone(all)
		all[more] = "true"
		return all
	}
	for name, test := range map[string]struct{ desired, want map[string]string }{
		"by somebody else":  {nil, wanted},
		"as the author has": {map[string]string{aggregate: "true"}, with(wanted, aggregate)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}}
			permissions := []client.Object{
				&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "c1-hello", Labels: test.desired}, Rules: rules}}
			h := hubWithPermissions(t, &permissions)
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "c1-hello", Labels: with(wanted, aggregate),
				Annotations: map[string]string{"rbac.authorization.k8s.io/any": "", other: "kept"}}}
			if err := h.Create(t.Context(), role); err != nil {
				t.Fatal(err)
			}
			h.reconcile(t)
			got := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "c1-hello"}}
			if !h.exists(t, got) || !maps.Equal(got.Labels, test.want) || !maps.Equal(got.Annotations, map[string]string{other: "kept"}) {
				t.Errorf("labels %v, annotations %v", got.Labels, got.Annotations)
			}
			if diff := cmp.Diff(rules, got.Rules); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func (h *hub) expectOfOthers(t *testing.T, err error, taken []client.Object) {
	t.Helper()
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("error %v", err)
	}
	for _, permission := range taken {
		want := "create " + identify(permission)
		if c := h.condition(t, "RegistrationApplied"); c.Reason != "SetPermissionFailed" || !strings.Contains(c.Message, want) {
			t.Errorf("%+v, not about %q", c, want)
		}
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "role"}}
	if !h.exists(t, role) || role.Rules[0].Verbs[0] != "*" {
		t.Errorf("a role of somebody else is %+v now", role)
	}
}

func (h *hub) expectOurs(t *testing.T, permissions []client.Object) {
	t.Helper()
	labels := map[string]string{fleet.LabelAddOnName: "hello", fleet.LabelClusterName: "c1", fleet.LabelAddOnManager: "test"}
	for _, want := range permissions {
		got := emptyLike(want)
		got.SetNamespace(want.GetNamespace())
		got.SetName(want.GetName())
		if !h.exists(t, got) || !maps.Equal(got.GetLabels(), labels) || len(got.GetAnnotations())+len(got.GetFinalizers()) > 0 {
			t.Errorf("%s has labels %v, annotations %v, finalizers %v", identify(want), got.GetLabels(), got.GetAnnotations(), got.GetFinalizers())
		}
		if diff := cmp.Diff(content(want), content(got)); diff != "" {
			t.Errorf("%s: %s", identify(want), diff)
		}
	}
}

// content is what a permission gives, and to whom.
func content(permission client.Object) []any {
	switch o := permission.(type) {
	case *rbacv1.Role:
		return []any{o.Rules}
	case *rbacv1.ClusterRole:
		return []any{o.Rules}
	case *rbacv1.RoleBinding:
		return []any{o.RoleRef, o.Subjects}
	case *rbacv1.ClusterRoleBinding:
		return []any{o.RoleRef, o.Subjects}
	}
	return nil
}
