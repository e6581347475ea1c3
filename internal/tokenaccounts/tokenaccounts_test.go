package tokenaccounts_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/tokenaccounts"
)

// managed is a cluster with accounts. What fails is refused by the name of a namespace or account, or by "namespaces".
type managed struct {
	accounts map[string][]corev1.ServiceAccount
	refused  map[string]error
	deleted  []string
}

func (m *managed) Namespaces(context.Context) ([]corev1.Namespace, error) {
	named := func(name string, labels ...string) corev1.Namespace {
		namespace := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "a"}}}
		for _, label := range labels {
			namespace.Labels[label] = fleet.LabelTrue
		}
		return namespace
	}
	return []corev1.Namespace{named(fleet.NamespaceAgentAddOn), named("marked", fleet.ServiceAccountsLabels("c1", "hub", "mine")...),
		named("marked-by-others", fleet.ServiceAccountsLabels("c2", "hub", "another")...), named("unmarked")}, m.refused["namespaces"]
}

func (m *managed) Accounts(_ context.Context, namespace string) ([]corev1.ServiceAccount, error) {
	return m.accounts[namespace], m.refused[namespace]
}

func (m *managed) Delete(_ context.Context, account *corev1.ServiceAccount) error {
	if err := m.refused[account.Name]; err != nil {
		return err
	}
	m.deleted = append(m.deleted, account.Namespace+"/"+account.Name)
	return nil
}

func account(namespace, name, agent string) corev1.ServiceAccount {
	return corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Annotations: map[string]string{fleet.AnnotationAgentID: agent}}}
}

// MS-04 KL-36: of an agent that leaves, its own accounts go, wherever an agent may have made some. What cannot be deleted keeps no other,
// and is named.
func TestRemoveOf(t *testing.T) {
	t.Parallel()
	const usual = fleet.NamespaceAgentAddOn
	all := []string{"marked/c", "marked/d", usual + "/a"}
	accounts := corev1.Resource("serviceaccounts")
	forbidden, gone := apierrors.NewForbidden(accounts, "", errors.New("no")), apierrors.NewNotFound(accounts, "c")
	for name, test := range map[string]struct {
		agent   string
		refused map[string]error
		want    []string
		fails   string
	}{
		"all":                    {agent: "mine", want: all},
		"of another agent":       {agent: "another", want: []string{usual + "/b"}},
		"no agent":               {},
		"unknown namespaces":     {agent: "mine", refused: map[string]error{"namespaces": forbidden}, want: all[2:], fails: "the namespaces of"},
		"a namespace is refused": {agent: "mine", refused: map[string]error{"marked": forbidden}, want: all[2:], fails: "in namespace marked"},
		"an account is refused":  {agent: "mine", refused: map[string]error{"c": forbidden}, want: all[1:], fails: "account marked/c"},
		"an account has gone":    {agent: "mine", refused: map[string]error{"c": gone}, want: all[1:]},
		"an account is a new one": {agent: "mine", want: all[1:],
			refused: map[string]error{"c": apierrors.NewConflict(accounts, "c", errors.New("another UID"))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &managed{refused: test.refused, accounts: map[string][]corev1.ServiceAccount{
				usual:    {account(usual, "a", "mine"), account(usual, "b", "another"), {ObjectMeta: metav1.ObjectMeta{Namespace: usual, Name: "x"}}},
				"marked": {account("marked", "c", "mine"), account("marked", "d", "mine")}, "unmarked": {account("unmarked", "e", "mine")},
			}}
			err := tokenaccounts.RemoveOf(t.Context(), m, test.agent)
			if (err != nil) != (test.fails != "") || err != nil && (!strings.Contains(err.Error(), test.fails) ||
				!strings.Contains(err.Error(), "may stay, with the tokens")) {
				t.Errorf("it fails with %v, want %q", err, test.fails)
			}
			slices.Sort(m.deleted)
			if !slices.Equal(m.deleted, test.want) {
				t.Errorf("deleted %v, want %v", m.deleted, test.want)
			}
		})
	}
}
