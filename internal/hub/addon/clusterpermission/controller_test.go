package clusterpermission_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	permissionv1alpha1 "github.com/capstan-io/capstan/api/rbac/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/clusterpermission"
)

var (
	ci     = &rbacv1.Subject{APIGroup: "authentication.open-cluster-management.io", Kind: "ManagedServiceAccount", Name: "ci"}
	pods   = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}
	theKey = client.ObjectKey{Namespace: "c1", Name: "ci-rights"}
)

func permission(spec permissionv1alpha1.ClusterPermissionSpec) *permissionv1alpha1.ClusterPermission {
	p := &permissionv1alpha1.ClusterPermission{Spec: spec}
	p.Namespace, p.Name, p.UID, p.Generation = theKey.Namespace, theKey.Name, "1", 1
	return p
}

func bound(subjects ...rbacv1.Subject) permissionv1alpha1.ClusterPermissionSpec {
	return permissionv1alpha1.ClusterPermissionSpec{ClusterRole: &permissionv1alpha1.ClusterRole{Rules: pods},
		ClusterRoleBinding: &permissionv1alpha1.ClusterRoleBinding{Subjects: subjects}}
}

func account() *authenticationv1beta1.ManagedServiceAccount {
	return &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "ci"}}
}

func enabled() *addonv1beta1.ManagedClusterAddOn {
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "managed-serviceaccount"}}
	addOn.Status.Namespace = "accounts"
	return addOn
}

func newHub(t *testing.T, objects ...client.Object) (client.Client, func() metav1.Condition) {
	t.Helper()
	c, reconcile := newHubThatRefuses(t, func() error { return nil }, objects...)
	return c, func() metav1.Condition {
		t.Helper()
		condition, _ := reconcile()
		return condition
	}
}

// newHubThatRefuses is a hub that refuses to write works while there is a reason.
func newHubThatRefuses(t *testing.T, reason func() error, objects ...client.Object) (client.Client,
	func() (metav1.Condition, ctrl.Result)) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{addonv1beta1.AddToScheme, authenticationv1beta1.AddToScheme,
		permissionv1alpha1.AddToScheme, workv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&permissionv1alpha1.ClusterPermission{}, &workv1.ManifestWork{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if err := reason(); err != nil {
					return err
				}
				return c.Create(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if err := reason(); err != nil {
					return err
				}
				return c.Patch(ctx, o, p, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if err := reason(); err != nil {
					return err
				}
				return c.Delete(ctx, o, opts...)
			},
		}).Build()
	controller := clusterpermission.New(c, clusterpermission.Options{
		Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC))})
	return c, func() (metav1.Condition, ctrl.Result) {
		t.Helper()
		result, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: theKey})
		if err != nil {
			t.Fatal(err)
		}
		now := &permissionv1alpha1.ClusterPermission{}
		if err := c.Get(t.Context(), theKey, now); err != nil {
			t.Fatal(err)
		}
		condition := meta.FindStatusCondition(now.Status.Conditions, "AppliedRBACManifestWork")
		if condition == nil {
			t.Fatalf("no condition in %+v", now.Status)
		}
		return *condition, result
	}
}

// manifests returns what the work of the permission has, if there is one, as kind, namespace/name, role and subjects.
func manifests(t *testing.T, c client.Client) (all []string) {
	t.Helper()
	work := &workv1.ManifestWork{}
	if err := c.Get(t.Context(), theKey, work); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	for _, manifest := range work.Spec.Workload.Manifests {
		var object struct {
			Kind     string
			Metadata metav1.ObjectMeta
			RoleRef  rbacv1.RoleRef
			Subjects []rbacv1.Subject
			Rules    []rbacv1.PolicyRule
		}
		if err := json.Unmarshal(manifest.Raw, &object); err != nil {
			t.Fatal(err)
		}
		text := object.Kind + " " + object.Metadata.Namespace + "/" + object.Metadata.Name
		if len(object.Rules) > 0 {
			text += " allows " + object.Rules[0].Verbs[0] + " " + object.Rules[0].Resources[0]
		}
		if object.RoleRef.Name != "" {
			text += " of " + object.RoleRef.Kind + " " + object.RoleRef.Name
		}
		for _, subject := range object.Subjects {
			text += " to " + subject.Kind + " " + subject.Namespace + "/" + subject.Name
		}
		all = append(all, text)
	}
	return all
}

// A12: the rights are on the cluster, and a ManagedServiceAccount is its service account there.
func TestApplied(t *testing.T) {
	t.Parallel()
	user := rbacv1.Subject{Kind: "User", Name: "ann"}
	c, reconcile := newHub(t, account(), enabled(), permission(permissionv1alpha1.ClusterPermissionSpec{
		ClusterRole:        &permissionv1alpha1.ClusterRole{Rules: pods},
		ClusterRoleBinding: &permissionv1alpha1.ClusterRoleBinding{Subject: ci},
		Roles:              []permissionv1alpha1.Role{{Namespace: "default", Rules: pods}},
		RoleBindings: []permissionv1alpha1.RoleBinding{
			{Namespace: "default", Subjects: []rbacv1.Subject{*ci, user}, RoleRef: permissionv1alpha1.RoleRef{Kind: "Role"}},
			{Namespace: "web", Name: "viewers", Subject: &rbacv1.Subject{Kind: "Group", Name: "team"},
				RoleRef: permissionv1alpha1.RoleRef{Kind: "ClusterRole", Name: "view"}},
		},
	}))
	if condition := reconcile(); condition.Status != metav1.ConditionFalse || condition.Reason != "Progressing" {
		t.Errorf("%+v", condition)
	}
	if diff := cmp.Diff([]string{
		"ClusterRole /ci-rights allows get pods",
		"Role default/ci-rights allows get pods",
		"ClusterRoleBinding /ci-rights of ClusterRole ci-rights to ServiceAccount accounts/ci",
		"RoleBinding default/ci-rights of Role ci-rights to ServiceAccount accounts/ci to User /ann",
		"RoleBinding web/viewers of ClusterRole view to Group /team",
	}, manifests(t, c)); diff != "" {
		t.Error(diff)
	}
	work := &workv1.ManifestWork{}
	if err := c.Get(t.Context(), theKey, work); err != nil || !metav1.IsControlledBy(work, permission(bound())) {
		t.Errorf("%+v, %v", work.OwnerReferences, err)
	}
	work.Status.Conditions = []metav1.Condition{{Type: "Applied", Status: metav1.ConditionTrue, ObservedGeneration: work.Generation}}
	if err := c.Status().Update(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	if condition := reconcile(); condition.Status != metav1.ConditionTrue || condition.Reason != "AppliedRBACManifestWork" {
		t.Errorf("%+v", condition)
	}
	work.Status.Conditions[0].Status, work.Status.Conditions[0].Message = metav1.ConditionFalse, "namespace web is missing"
	if err := c.Status().Update(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	if condition := reconcile(); condition.Status != metav1.ConditionFalse ||
		!strings.Contains(condition.Message, "namespace web is missing") {
		t.Errorf("%+v", condition)
	}
	// The accounts have moved, and the rights follow them.
	moved := enabled()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(moved), moved); err != nil {
		t.Fatal(err)
	}
	moved.Status.Namespace = "elsewhere"
	if err := c.Update(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	reconcile()
	if all := manifests(t, c); !strings.HasSuffix(all[2], "to ServiceAccount elsewhere/ci") {
		t.Errorf("%q", all)
	}
}

// A12: what cannot be done is a condition that says what to do, and no binding is made.
func TestWaits(t *testing.T) {
	t.Parallel()
	other := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "ci-rights"}}
	for name, test := range map[string]struct {
		spec    permissionv1alpha1.ClusterPermissionSpec
		there   []client.Object
		message string
	}{
		"no account": {bound(*ci), []client.Object{enabled()},
			"spec.clusterRoleBinding: there is no ManagedServiceAccount ci in namespace c1: create it"},
		"no add-on": {bound(*ci), []client.Object{account()}, "managed-serviceaccount is not enabled on cluster c1"},
		"another group": {bound(rbacv1.Subject{APIGroup: "example.com", Kind: "ManagedServiceAccount", Name: "ci"}),
			[]client.Object{account(), enabled()}, `has the apiGroup "example.com": it is authentication.open-cluster-management.io`},
		"another kind": {bound(rbacv1.Subject{Kind: "Robot", Name: "r2"}), nil, `has the kind "Robot": use ManagedServiceAccount, User`},
		"no namespace": {bound(rbacv1.Subject{Kind: "ServiceAccount", Name: "sa"}), nil, "ServiceAccount sa has no namespace"},
		"another work": {bound(rbacv1.Subject{Kind: "User", Name: "ann"}), []client.Object{other}, "choose another name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, reconcile := newHub(t, append(test.there, permission(test.spec))...)
			condition := reconcile()
			if condition.Status != metav1.ConditionFalse || condition.Reason != "FailedRBACManifestWork" ||
				!strings.Contains(condition.Message, test.message) {
				t.Errorf("%+v, want %q", condition, test.message)
			}
			for _, manifest := range manifests(t, c) {
				if !strings.HasPrefix(manifest, "ClusterRole ") {
					t.Errorf("it was made: %s", manifest)
				}
			}
		})
	}
}

// A12: once a work of somebody else with the name of the permission has gone, of which there is no event, the rights are brought.
func TestWorkOfAnother(t *testing.T) {
	t.Parallel()
	other := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: theKey.Namespace, Name: theKey.Name}}
	c, reconcile := newHubThatRefuses(t, func() error { return nil }, other, permission(bound(rbacv1.Subject{Kind: "User", Name: "ann"})))
	condition, result := reconcile()
	if result.RequeueAfter != time.Minute || !strings.Contains(condition.Message, "ManifestWork c1/ci-rights: it is there already") {
		t.Errorf("%+v, tried again after %s", condition, result.RequeueAfter)
	}
	if all := manifests(t, c); len(all) > 0 {
		t.Errorf("the work of somebody else has %q", all)
	}
	if err := c.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if condition, result := reconcile(); condition.Reason != "Progressing" || result.RequeueAfter != 0 || len(manifests(t, c)) == 0 {
		t.Errorf("once it has gone: %+v, tried again after %s", condition, result.RequeueAfter)
	}
}

// A12: rights that are taken away go from the cluster, also those of an account that it cannot have, or while it has one that it cannot.
// Accounts are where they were last while the add-on does not say where they are.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	const (
		role    = "ClusterRole /ci-rights allows get pods"
		binding = "ClusterRoleBinding /ci-rights of ClusterRole ci-rights"
		ann     = binding + " to User /ann"
		back    = "RoleBinding default/ci-rights of ClusterRole edit to ServiceAccount accounts/ci"
	)
	noAccount, noAddOn := "there is no ManagedServiceAccount ci", "managed-serviceaccount is not enabled on cluster c1"
	deleted := func() client.Object { return account() }
	disabled := func() client.Object { return enabled() }
	unchanged := func(*permissionv1alpha1.ClusterPermissionSpec) {}
	for name, test := range map[string]struct {
		gone    func() client.Object
		edit    func(*permissionv1alpha1.ClusterPermissionSpec)
		want    []string
		message string
		others  bool
	}{
		"the account is deleted": {deleted, unchanged, []string{role, ann}, noAccount, true},
		"the add-on is disabled": {disabled, unchanged, []string{role, binding + " to ServiceAccount accounts/ci to User /ann", back}, noAddOn,
			true},
		"and rules are taken out": {deleted, func(s *permissionv1alpha1.ClusterPermissionSpec) { s.ClusterRole.Rules = nil },
			[]string{"ClusterRole /ci-rights", ann}, noAccount, true},
		"and the user is taken out": {disabled, func(s *permissionv1alpha1.ClusterPermissionSpec) {
			s.ClusterRoleBinding.Subjects = s.ClusterRoleBinding.Subjects[:1]
		}, []string{role, binding + " to ServiceAccount accounts/ci", back}, noAddOn, true},
		"and another user is put in": {disabled, func(s *permissionv1alpha1.ClusterPermissionSpec) {
			s.ClusterRoleBinding.Subjects = append(s.ClusterRoleBinding.Subjects, rbacv1.Subject{Kind: "User", Name: "bob"})
		}, []string{role, binding + " to ServiceAccount accounts/ci to User /ann to User /bob", back}, noAddOn, true},
		"and the account gets another right, too": {disabled, func(s *permissionv1alpha1.ClusterPermissionSpec) {
			s.RoleBindings = append(s.RoleBindings, permissionv1alpha1.RoleBinding{Namespace: "web", Subject: ci,
				RoleRef: permissionv1alpha1.RoleRef{Kind: "ClusterRole", Name: "edit"}})
		}, []string{role, binding + " to ServiceAccount accounts/ci to User /ann", back,
			"RoleBinding web/ci-rights of ClusterRole edit to ServiceAccount accounts/ci"}, noAddOn, true},
		"and no other is left": {deleted, func(s *permissionv1alpha1.ClusterPermissionSpec) {
			s.ClusterRole, s.ClusterRoleBinding = nil, nil
		}, nil, noAccount, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := bound(*ci, rbacv1.Subject{Kind: "User", Name: "ann"})
			spec.RoleBindings = []permissionv1alpha1.RoleBinding{{Namespace: "default", Subject: ci,
				RoleRef: permissionv1alpha1.RoleRef{Kind: "ClusterRole", Name: "edit"}}}
			c, reconcile := newHub(t, account(), enabled(), permission(spec))
			reconcile()
			if all := manifests(t, c); !slices.Contains(all, back) {
				t.Fatalf("%q lacks %q", all, back)
			}
			if err := c.Delete(t.Context(), test.gone()); err != nil {
				t.Fatal(err)
			}
			now := &permissionv1alpha1.ClusterPermission{}
			if err := c.Get(t.Context(), theKey, now); err != nil {
				t.Fatal(err)
			}
			test.edit(&now.Spec)
			if err := c.Update(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			var condition metav1.Condition
			for range 2 { // the second pass is about the work of the first
				condition = reconcile()
				if diff := cmp.Diff(test.want, manifests(t, c)); diff != "" {
					t.Error(diff)
				}
			}
			if condition.Status != metav1.ConditionFalse || condition.Reason != "FailedRBACManifestWork" ||
				!strings.Contains(condition.Message, "spec.roleBindings[0]: ") || !strings.Contains(condition.Message, test.message) ||
				strings.Contains(condition.Message, "Apart from these subjects: ") != test.others {
				t.Errorf("%+v, want %q", condition, test.message)
			}
			if err := c.Create(t.Context(), test.gone()); err != nil {
				t.Fatal(err)
			}
			if condition := reconcile(); condition.Reason != "Progressing" {
				t.Errorf("once it is back: %+v", condition)
			}
			if all := manifests(t, c); !slices.Contains(all, back) {
				t.Errorf("once it is back: %q lacks %q", all, back)
			}
		})
	}
}

// A12: what the hub refuses is said, of a new work as of a change or a deletion, and tried again unless only another ClusterPermission can
// help.
func TestRefused(t *testing.T) {
	t.Parallel()
	works := workv1.GroupVersion.WithResource("manifestworks").GroupResource()
	for name, test := range map[string]struct {
		err   error
		again time.Duration
	}{
		"the cluster is denied": {apierrors.NewForbidden(works, "ci-rights", errors.New("the cluster is denied")), time.Minute},
		"invalid":               {apierrors.NewInvalid(workv1.GroupVersion.WithKind("ManifestWork").GroupKind(), "ci-rights", nil), 0},
		"a bad request":         {apierrors.NewBadRequest("no"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reason := test.err
			c, reconcile := newHubThatRefuses(t, func() error { return reason }, permission(bound(rbacv1.Subject{Kind: "User", Name: "ann"})))
			expectRefusal := func() {
				t.Helper()
				condition, result := reconcile()
				if condition.Status != metav1.ConditionFalse || condition.Reason != "FailedRBACManifestWork" ||
					!strings.Contains(condition.Message, "the hub refuses its ManifestWork: ") ||
					!strings.Contains(condition.Message, test.err.Error()) || result.RequeueAfter != test.again {
					t.Errorf("%+v, tried again after %s, want %s", condition, result.RequeueAfter, test.again)
				}
			}
			expectRefusal()
			reason = nil
			if condition, result := reconcile(); condition.Reason != "Progressing" || result.RequeueAfter != 0 {
				t.Errorf("once it is accepted: %+v, tried again after %s", condition, result.RequeueAfter)
			}
			work, now := &workv1.ManifestWork{}, &permissionv1alpha1.ClusterPermission{}
			if err := c.Get(t.Context(), theKey, work); err != nil {
				t.Fatal(err)
			}
			work.Status.Conditions = []metav1.Condition{{Type: "Applied", Status: metav1.ConditionTrue, ObservedGeneration: work.Generation}}
			if err := c.Status().Update(t.Context(), work); err != nil {
				t.Fatal(err)
			}
			if condition, _ := reconcile(); condition.Status != metav1.ConditionTrue {
				t.Errorf("applied: %+v", condition)
			}
			if err := c.Get(t.Context(), theKey, now); err != nil {
				t.Fatal(err)
			}
			now.Spec.ClusterRoleBinding.Subjects[0].Name = "bob"
			if err := c.Update(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			reason = test.err
			expectRefusal()
			if err := c.Get(t.Context(), theKey, now); err != nil {
				t.Fatal(err)
			}
			now.Spec = permissionv1alpha1.ClusterPermissionSpec{}
			if err := c.Update(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			expectRefusal()
		})
	}
}
