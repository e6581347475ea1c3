package rights_test

import (
	"context"
	"errors"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/rights"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
)

// HC-02: of the rules of a role, those may be granted that are held, as RBAC decides.
func TestGrantable(t *testing.T) {
	t.Parallel()
	rule := func(groups, resources, names []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: groups, Resources: resources, ResourceNames: names, Verbs: verbs}
	}
	core, pods := []string{""}, []string{"pods"}
	for name, test := range map[string]struct {
		held, rules, granted, missing []rbacv1.PolicyRule
	}{
		"nothing held": {
			rules:   []rbacv1.PolicyRule{rule(core, pods, nil, "get", "list")},
			missing: []rbacv1.PolicyRule{rule(core, pods, nil, "get", "list")}},
		"more held": {
			held:    []rbacv1.PolicyRule{rule([]string{"*"}, []string{"*"}, nil, "*")},
			rules:   []rbacv1.PolicyRule{rule([]string{"", "apps"}, []string{"pods", "pods/log"}, nil, "get", "list")},
			granted: []rbacv1.PolicyRule{rule([]string{"", "apps"}, []string{"pods", "pods/log"}, nil, "get", "list")}},
		"held in parts": {
			held:    []rbacv1.PolicyRule{rule(core, pods, nil, "get"), rule(core, pods, nil, "list")},
			rules:   []rbacv1.PolicyRule{rule(core, pods, nil, "get", "list")},
			granted: []rbacv1.PolicyRule{rule(core, pods, nil, "get", "list")}},
		"some verbs, resources and groups": {
			held:  []rbacv1.PolicyRule{rule(core, []string{"pods", "pods/status"}, nil, "get", "list"), rule(core, []string{"secrets"}, nil, "get")},
			rules: []rbacv1.PolicyRule{rule([]string{"", "apps"}, []string{"pods", "secrets"}, nil, "get", "list", "watch")},
			granted: []rbacv1.PolicyRule{rule(core, pods, nil, "get", "list"),
				rule(core, []string{"secrets"}, nil, "get")},
			missing: []rbacv1.PolicyRule{rule(core, pods, nil, "watch"), rule(core, []string{"secrets"}, nil, "list", "watch"),
				rule([]string{"apps"}, pods, nil, "get", "list", "watch"), rule([]string{"apps"}, []string{"secrets"}, nil, "get", "list", "watch")}},
		"some names": {
			held:    []rbacv1.PolicyRule{rule(core, pods, []string{"a"}, "get")},
			rules:   []rbacv1.PolicyRule{rule(core, pods, []string{"a", "b"}, "get"), rule(core, pods, nil, "get")},
			granted: []rbacv1.PolicyRule{rule(core, pods, []string{"a"}, "get")},
			missing: []rbacv1.PolicyRule{rule(core, pods, []string{"b"}, "get"), rule(core, pods, nil, "get")}},
		"a name of all": {
			held:    []rbacv1.PolicyRule{rule(core, pods, nil, "get")},
			rules:   []rbacv1.PolicyRule{rule(core, pods, []string{"a"}, "get")},
			granted: []rbacv1.PolicyRule{rule(core, pods, []string{"a"}, "get")}},
	} {
		granted, missing := rights.Grantable(test.held, test.rules)
		if !equality.Semantic.DeepEqual(granted, test.granted) || !equality.Semantic.DeepEqual(missing, test.missing) {
			t.Errorf("%s: %v may be granted, want %v; missing are %v, want %v", name, granted, test.granted, missing, test.missing)
		}
	}
}

// HC-02: what may be granted in all namespaces is what is held in one that nobody can have rights in.
func TestHeld(t *testing.T) {
	t.Parallel()
	rules := rightstest.Klusterlet()
	for namespace, want := range map[string]string{"hub": "hub", "": "-"} {
		reviewer := &recordingReviewer{RulesReviewer: rightstest.RulesReviewer{Rules: rules}}
		held, err := rights.Held(t.Context(), reviewer, namespace)
		if err != nil || !equality.Semantic.DeepEqual(held, rules) || reviewer.namespace != want {
			t.Errorf("in namespace %q: asked for %q, %v, %v", namespace, reviewer.namespace, held, err)
		}
	}
	if held, err := rights.Held(t.Context(), &recordingReviewer{err: errors.New("no route")}, ""); err == nil || held != nil {
		t.Errorf("without an answer: %v, %v", held, err)
	}
}

// recordingReviewer remembers the namespace that a review was about.
type recordingReviewer struct {
	rights.RulesReviewer
	namespace string
	err       error
}

func (a *recordingReviewer) Create(ctx context.Context, review *authorizationv1.SelfSubjectRulesReview, options metav1.CreateOptions) (
	*authorizationv1.SelfSubjectRulesReview, error,
) {
	a.namespace = review.Spec.Namespace
	if a.err != nil {
		return nil, a.err
	}
	return a.RulesReviewer.Create(ctx, review, options)
}
