package klusterlet

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/capstan-io/capstan/internal/operator/rights"
	"github.com/capstan-io/capstan/internal/operator/rights/rightstest"
)

// HC-06: with the rules that the chart of Open Cluster Management has, the operator does without what it may not watch, and without nothing
// else.
func TestRightsOfOtherChart(t *testing.T) {
	t.Parallel()
	reviewer := rightstest.Reviewer{Rules: rightstest.Klusterlet()}
	kinds := func(watches ...rights.Watch) (names []string) {
		missing, err := rights.Missing(t.Context(), reviewer, watches...)
		if err != nil {
			t.Fatal(err)
		}
		if !rights.Watched(missing, kindKlusterlet) {
			t.Error("it may not do its task")
		}
		for _, watch := range missing {
			names = append(names, watch.Kind)
		}
		return names
	}
	if got := kinds(watches("operators")...); !slices.Equal(got, []string{"Pod", "EndpointSlice"}) {
		t.Errorf("the manager does without %v", got)
	}
	var all []rights.Watch
	for _, kind := range managementKinds() {
		all = append(all, rights.Watch{GroupVersionKind: kind})
	}
	if got := kinds(all...); !slices.Equal(got, []string{"PodDisruptionBudget", "NetworkPolicy", "Secret"}) {
		t.Errorf("of what is installed, it watches all but %v", got)
	}
}

// HC-06: Secrets of a name that may not be watched are read, and the rule is named that permits to watch them.
func TestSecretsWithoutWatch(t *testing.T) {
	t.Parallel()
	stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "agent", Name: "bootstrap"}}
	client := fake.NewClientset(stored)
	s := newSecretsByName(t.Context(), client.CoreV1(), rightstest.Reviewer{Rules: []rbacv1.PolicyRule{}}, nil)
	if secret, err := s.get(t.Context(), "agent", "bootstrap"); err != nil || secret == nil {
		t.Errorf("one that exists: %v, %v", secret, err)
	}
	if secret, err := s.get(t.Context(), "agent", "other"); err != nil || secret != nil {
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
	c := &Controller{Options: Options{Namespace: "agent"}, secrets: s}
	if secret, err := c.pullSecret(t.Context()); err != nil || secret != nil {
		t.Errorf("credentials for images that may not be read: %v, %v", secret, err)
	}
	_, err := s.get(t.Context(), "agent", "bootstrap")
	if err == nil || !strings.Contains(err.Error(), `the rule {apiGroups: [""], resources: [secrets]`) {
		t.Errorf("one that may not be read: %v", err)
	}
}
