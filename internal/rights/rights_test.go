package rights_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capstan-io/capstan/internal/rights"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
)

var secrets = corev1.SchemeGroupVersion.WithKind("Secret")

// HC-02: what may be listed and watched is, by name where the rule has names; the rule that is missing is one to copy.
func TestMissing(t *testing.T) {
	t.Parallel()
	grant := func(names []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: names, Verbs: verbs}
	}
	const anySecret = `{apiGroups: [""], resources: [secrets], verbs: [list, watch]}`
	for name, test := range map[string]struct {
		rule  rbacv1.PolicyRule
		watch rights.Watch
		want  string
	}{
		"all":             {grant(nil, "list", "watch"), rights.Watch{GroupVersionKind: secrets}, ""},
		"list alone":      {grant(nil, "list"), rights.Watch{GroupVersionKind: secrets}, anySecret},
		"watch alone":     {grant(nil, "watch"), rights.Watch{GroupVersionKind: secrets}, anySecret},
		"one of all":      {grant([]string{"a"}, "list", "watch"), rights.Watch{GroupVersionKind: secrets}, "verbs"},
		"one by name":     {grant([]string{"a"}, "list", "watch"), rights.Watch{GroupVersionKind: secrets, Name: "a"}, ""},
		"another by name": {grant([]string{"a"}, "list", "watch"), rights.Watch{GroupVersionKind: secrets, Name: "b"}, "resourceNames: [b]"},
		"in a namespace":  {grant(nil, "get"), rights.Watch{GroupVersionKind: secrets, Namespace: "n"}, "in namespace n"},
		"a kind that is a plural": {rbacv1.PolicyRule{}, rights.Watch{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Endpoints")},
			"[endpoints]"},
		"a kind with y": {rbacv1.PolicyRule{}, rights.Watch{GroupVersionKind: schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1",
			Kind: "NetworkPolicy"}}, `{apiGroups: ["networking.k8s.io"], resources: [networkpolicies], verbs: [list, watch]}`},
	} {
		missing, err := rights.Missing(t.Context(), rightstest.Reviewer{Rules: []rbacv1.PolicyRule{test.rule}}, test.watch)
		rules := strings.Join(rights.Rules(missing), "")
		if err != nil || test.want == "" && rules != "" || !strings.Contains(rules, test.want) {
			t.Errorf("%s: %q, %v, want %q", name, rules, err, test.want)
		}
	}
}

// HC-02: where nobody may create reviews, the operator works as if it had all rights; that the question fails is an error.
func TestMissingWithoutAnswer(t *testing.T) {
	t.Parallel()
	watch := rights.Watch{GroupVersionKind: secrets}
	forbidden := failing{err: apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))}
	if missing, err := rights.Missing(t.Context(), forbidden, watch); err != nil || missing != nil {
		t.Errorf("forbidden: %v, %v", missing, err)
	}
	_, err := rights.Missing(t.Context(), failing{err: errors.New("no route")}, watch)
	if err == nil || !strings.Contains(err.Error(), "may watch secrets") {
		t.Errorf("no answer: %v", err)
	}
}

type failing struct {
	rights.Reviewer
	err error
}

func (f failing) Create(context.Context, *authorizationv1.SelfSubjectAccessReview, metav1.CreateOptions) (
	*authorizationv1.SelfSubjectAccessReview, error,
) {
	return nil, f.err
}

// HC-02: a rule that is added is noticed: the operator ends, and says why. As long as none is, or nobody answers, it goes on.
func TestRecheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers, ended := &changing{}, make(chan error, 1)
		answers.become(rightstest.Reviewer{})
		recheck := rights.Recheck{Reviewer: answers, Watches: []rights.Watch{{GroupVersionKind: secrets}}}
		go func() { ended <- recheck.Start(t.Context()) }()
		for _, reviewer := range []rights.Reviewer{rightstest.Reviewer{}, failing{err: errors.New("no route")}} {
			answers.become(reviewer)
			<-time.After(time.Hour)
			synctest.Wait()
			if len(ended) > 0 {
				t.Fatalf("ended: %v", <-ended)
			}
		}
		answers.become(rightstest.Reviewer{Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list", "watch"}}}})
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "the process may watch secrets now") {
			t.Errorf("ended: %v", err)
		}
	})
}

// changing answers as the latest reviewer.
type changing struct {
	rights.Reviewer
	mu sync.Mutex
}

func (c *changing) become(reviewer rights.Reviewer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Reviewer = reviewer
}

func (c *changing) Create(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview, options metav1.CreateOptions) (
	*authorizationv1.SelfSubjectAccessReview, error,
) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Reviewer.Create(ctx, review, options)
}

// HC-02: what may not be watched is read from the API server, with the rights that there are; the rest comes from the cache.
func TestWithoutWatches(t *testing.T) {
	t.Parallel()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}}
	denied := apierrors.NewForbidden(corev1.Resource("secrets"), "a", errors.New(`User "o" cannot get resource "secrets" in API group ""`))
	for name, test := range map[string]struct {
		failure error
		objects []client.Object
		found   bool
		fails   bool
	}{
		"there":                {objects: []client.Object{secret}, found: true},
		"not there":            {},
		"that may not be read": {objects: []client.Object{secret}, failure: denied},
		"without an answer":    {failure: errors.New("no route"), fails: true},
	} {
		api := interceptor.NewClient(fake.NewClientBuilder().WithObjects(test.objects...).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				if test.failure != nil {
					return test.failure
				}
				return c.Get(ctx, key, o, options...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if test.failure != nil {
					return test.failure
				}
				return c.List(ctx, list, options...)
			},
		})
		c := rights.WithoutWatches(fake.NewClientBuilder().WithObjects(configMap).Build(), api, []rights.Watch{{GroupVersionKind: secrets}})
		err := c.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{})
		if (err == nil) != test.found || (client.IgnoreNotFound(err) != nil) != test.fails {
			t.Errorf("a Secret %s: %v", name, err)
		}
		list := &corev1.SecretList{}
		if err := c.List(t.Context(), list); (err != nil) != test.fails || (len(list.Items) > 0) != test.found {
			t.Errorf("Secrets %s: %d, %v", name, len(list.Items), err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(configMap), &corev1.ConfigMap{}); err != nil {
			t.Errorf("what may be watched, %s: %v", name, err)
		}
	}
}

// HC-02: a missing rule is reported by a condition, and once by an event; both end when it is added.
func TestReport(t *testing.T) {
	t.Parallel()
	recorder, about, conditions := events.NewFakeRecorder(10), &corev1.ConfigMap{}, []metav1.Condition{}
	for _, step := range []struct {
		rules  []string
		events int
		want   string
	}{
		{nil, 0, ""},
		{[]string{"b", "a", "b"}, 1, "a; b"},
		{[]string{"a", "b"}, 0, "a; b"},
		{[]string{"a"}, 1, "a"},
		{nil, 0, ""},
	} {
		rights.Report(recorder, about, &conditions, step.rules)
		got := ""
		if len(conditions) > 0 {
			got = conditions[0].Message
		}
		if !strings.HasSuffix(got, step.want) || (got == "") != (step.want == "") || len(recorder.Events) != step.events {
			t.Errorf("%v: %q, %d events", step.rules, got, len(recorder.Events))
		}
		for len(recorder.Events) > 0 {
			<-recorder.Events
		}
	}
}

// HC-02: an event of many rules is one that the API server accepts: it has the first ones, whole, and says where the others are.
func TestReportOfManyRules(t *testing.T) {
	t.Parallel()
	var rules []string
	for i := range 40 {
		rules = append(rules, rights.Rule(secrets.GroupKind(), "", fmt.Sprintf("secret-%02d", i), "get", "list", "watch"))
	}
	recorder, conditions := events.NewFakeRecorder(1), []metav1.Condition{}
	rights.Report(recorder, &corev1.ConfigMap{}, &conditions, rules)
	if message := conditions[0].Message; !strings.HasSuffix(message, rules[39]) {
		t.Errorf("the condition leaves out rules: %s", message)
	}
	_, note, _ := strings.Cut(<-recorder.Events, rights.ReasonRulesMissing+" ")
	shown, rest, _ := strings.Cut(note, "; and ")
	named := strings.Count(shown, "apiGroups")
	if len(note) > 1024 || named == 0 || rest != fmt.Sprintf("%d more, in the condition OperatorPermitted", 40-named) ||
		!strings.HasSuffix(shown, rules[named-1]) {
		t.Errorf("%d bytes with %d rules: %s", len(note), named, note)
	}
}
