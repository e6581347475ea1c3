package apply

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capstan-io/capstan/internal/rights"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
)

// granting returns a cluster that refuses roles with more rules than are held, as RBAC does. It lets nobody write what is called quota.
func granting(held *rightstest.RulesReviewer, reviewer rights.RulesReviewer) *Cluster {
	refuse := func(name, reason string) error {
		return apierrors.NewForbidden(rbacv1.Resource("clusterroles"), name, errors.New(reason))
	}
	writer := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, applied runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			content, err := json.Marshal(applied)
			if err != nil {
				return err
			}
			role := rbacv1.ClusterRole{} // a Role has the same fields
			if err := json.Unmarshal(content, &role); err != nil {
				return err
			}
			if covered, _ := validation.Covers(held.Rules, role.Rules); !covered {
				return refuse(role.Name, `user "operator" (groups=[]) is attempting to grant RBAC permissions not currently held`)
			}
			if role.Name == "quota" {
				return refuse(role.Name, "exceeded quota")
			}
			return c.Apply(ctx, applied, options...)
		},
	}).Build()
	return &Cluster{Client: writer, rulesReviewer: reviewer, applied: map[reference]state{}, ungranted: map[reference][]string{},
		unwatched: map[schema.GroupVersionKind]bool{rbacv1.SchemeGroupVersion.WithKind("ClusterRole"): true,
			rbacv1.SchemeGroupVersion.WithKind("Role"): true},
		Options: Options{Label: "installation", FieldManager: "operator", Scheme: scheme.Scheme}}
}

func clusterRule(resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"cluster"}, Resources: []string{resource}, Verbs: verbs}
}

// HC-02: a role has the rules that the operator may grant; the others are named, and come once it may grant them.
func TestApplyRoleInPart(t *testing.T) {
	t.Parallel()
	whole := []rbacv1.PolicyRule{clusterRule("sets", "get"), clusterRule("clusters", "get", "delete"), clusterRule("placements", "create")}
	part := []rbacv1.PolicyRule{clusterRule("sets", "get"), clusterRule("clusters", "get")}
	for _, namespace := range []string{"", "hub"} {
		held := &rightstest.RulesReviewer{Rules: part}
		c := granting(held, held)
		role := func(rules []rbacv1.PolicyRule) client.Object {
			meta := metav1.ObjectMeta{Namespace: namespace, Name: "controller"}
			if namespace == "" {
				return &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}
			}
			return &rbacv1.Role{ObjectMeta: meta, Rules: rules}
		}
		apply := func(want []rbacv1.PolicyRule, missing ...string) (version string) {
			t.Helper()
			applied, live := role(whole), role(nil)
			if err := c.Apply(t.Context(), "one", applied); err != nil {
				t.Fatal(err)
			}
			if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(live), live); err != nil {
				t.Fatal(err)
			}
			if got := *rulesOf(live); !equality.Semantic.DeepEqual(got, want) || live.GetLabels()["installation"] != "one" {
				t.Errorf("in namespace %q, it has the rules %v, want %v", namespace, got, want)
			}
			if *rulesOf(applied) == nil || applied.GetResourceVersion() != live.GetResourceVersion() {
				t.Errorf("in namespace %q, what was to be applied became %v", namespace, applied)
			}
			var named []string
			for _, rule := range c.MissingRules() {
				if strings.Contains(rule, `["cluster"]`) {
					named = append(named, rule)
				}
			}
			if !slices.Equal(named, missing) {
				t.Errorf("in namespace %q, missing are %q, want %q", namespace, named, missing)
			}
			return live.GetResourceVersion()
		}
		suffix := ""
		if namespace != "" {
			suffix = " in namespace " + namespace
		}
		missing := []string{`{apiGroups: ["cluster"], resources: [clusters], verbs: [delete]}` + suffix,
			`{apiGroups: ["cluster"], resources: [placements], verbs: [create]}` + suffix}
		first := apply(part, missing...)
		if again := apply(part, missing...); again != first {
			t.Errorf("in namespace %q, it is written again, to version %s", namespace, again)
		}
		held.Rules = whole
		apply(whole)
	}
}

// A role that is refused for another reason than its rules, or whose missing rules cannot be found out, is not applied.
func TestApplyRefusedRole(t *testing.T) {
	t.Parallel()
	held := &rightstest.RulesReviewer{Rules: []rbacv1.PolicyRule{clusterRule("sets", "get")}}
	for name, test := range map[string]struct {
		reviewer rights.RulesReviewer
		role     rbacv1.ClusterRole
		want     []string
	}{
		"a quota": {held, rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "quota"}, Rules: held.Rules}, []string{"exceeded quota"}},
		"a part within a quota": {held, rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "quota"},
			Rules: []rbacv1.PolicyRule{clusterRule("sets", "get", "list")}}, []string{"exceeded quota"}},
		"no answer": {unanswered{}, rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "controller"},
			Rules: []rbacv1.PolicyRule{clusterRule("sets", "list")}}, []string{"not currently held", "no route"}},
	} {
		c := granting(held, test.reviewer)
		err := c.Apply(t.Context(), "one", &test.role)
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
		if len(c.ungranted) > 0 {
			t.Errorf("%s: left out are %v", name, c.ungranted)
		}
	}
}

type unanswered struct{ rights.RulesReviewer }

func (unanswered) Create(context.Context, *authorizationv1.SelfSubjectRulesReview, metav1.CreateOptions) (
	*authorizationv1.SelfSubjectRulesReview, error,
) {
	return nil, errors.New("no route")
}
