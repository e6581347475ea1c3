package frame

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/capstan-io/capstan/internal/rights/rightstest"
)

// HC-06: Secrets of a name that may not be watched are read, and the rule is named that permits to watch them.
func TestSecretsWithoutWatch(t *testing.T) {
	t.Parallel()
	stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "agent", Name: "bootstrap"}}
	client := fake.NewClientset(stored)
	s := NewSecrets(t.Context(), client.CoreV1(), rightstest.Reviewer{Rules: []rbacv1.PolicyRule{}}, nil)
	if secret, err := s.Get(t.Context(), "agent", "bootstrap"); err != nil || secret == nil {
		t.Errorf("one that exists: %v, %v", secret, err)
	}
	if secret, err := s.Get(t.Context(), "agent", "other"); err != nil || secret != nil {
		t.Errorf("one that does not: %v, %v", secret, err)
	}
	rules := s.missingRules()
	if len(rules) != 2 || !strings.Contains(strings.Join(rules, ""), "resourceNames: [bootstrap], verbs: [list, watch]") {
		t.Errorf("missing %v", rules)
	}
	client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), "bootstrap",
			errors.New(`User "operator" cannot get resource "secrets" in API group "" in the namespace "agent"`))
	})
	o := &Operator{Options: Options{Namespace: "agent"}, Secrets: s}
	if secret, err := o.OwnSecret(t.Context(), "bootstrap"); err != nil || secret != nil {
		t.Errorf("credentials for images that may not be read: %v, %v", secret, err)
	}
	_, err := s.Get(t.Context(), "agent", "bootstrap")
	if err == nil || !strings.Contains(err.Error(), `the rule {apiGroups: [""], resources: [secrets]`) {
		t.Errorf("one that may not be read: %v", err)
	}
}

// CM-23: Secrets that are read from the API server are watched, as far as that is permitted.
func TestFollowSecrets(t *testing.T) {
	t.Parallel()
	permitted := rightstest.Reviewer{Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"serving"}, Verbs: keepVerbs},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"watched"}, Verbs: watchVerbs}}}
	s := NewSecrets(t.Context(), fake.NewClientset().CoreV1(), permitted, func(types.NamespacedName) {})
	for name, want := range map[string]struct{ watched, kept bool }{"serving": {true, true}, "watched": {true, false}, "other": {}} {
		got, err := s.Follow(t.Context(), name)
		if err != nil || got != want.kept || (s.watches[name] != nil) != want.watched {
			t.Errorf("%s: permitted is %t, %v; it watches %v", name, got, err, s.watches)
		}
	}
	s.Unfollow("watched")
	rules := s.missingRules()
	if len(rules) != 1 || !strings.Contains(rules[0], "resourceNames: [other], verbs: [get, list, watch, update, patch, delete]") {
		t.Errorf("missing %v", rules)
	}
	s.Unfollow("other")
	if rules := s.missingRules(); len(rules) > 0 {
		t.Errorf("for what is not to be kept, these are missing: %v", rules)
	}
}
