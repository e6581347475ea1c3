package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var (
	secretKind = corev1.SchemeGroupVersion.WithKind("Secret")
	policyKind = networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy")
)

// refusing returns a cluster that refuses to apply, for that reason, and to read and create as well if it is to.
func refusing(reason string, all bool, existing ...client.Object) *Cluster {
	err := apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New(reason))
	refused := func() error {
		if all {
			return err
		}
		return nil
	}
	writer := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(existing...).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return err
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return err
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return orElse(refused(), func() error { return c.Create(ctx, o, options...) })
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			return orElse(refused(), func() error { return c.Get(ctx, key, o, options...) })
		},
	}).Build()
	return &Cluster{Client: writer, applied: map[reference]state{}, unwatched: map[schema.GroupVersionKind]bool{secretKind: true},
		unwritten: map[schema.GroupVersionKind]string{},
		Options: Options{Label: "installation", FieldManager: "operator", Scheme: scheme.Scheme,
			Kinds: []schema.GroupVersionKind{secretKind, policyKind}, Optional: []schema.GroupVersionKind{policyKind}}}
}

func orElse(err error, otherwise func() error) error {
	if err != nil {
		return err
	}
	return otherwise()
}

const policyRule = `{apiGroups: ["networking.k8s.io"], resources: [networkpolicies], verbs: [get, list, watch, create, ` +
	`update, patch, delete]}`

const noRule = `User "operator" cannot patch resource "x" in API group "" in the namespace "hub"`

// HC-02: who may create and update, but not patch, does; what others have set stays. Nothing is written again that is as it was left.
func TestApplyWithoutPatch(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{Namespace: "hub", Name: "a"}
	existing := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hub", Name: "a", Labels: map[string]string{"of": "others"}},
		Data: map[string][]byte{"content": []byte("old")}}
	for name, test := range map[string]struct {
		existing []client.Object
		version  string
		label    string
		fails    bool
	}{
		"a new one":                       {},
		"one that is there":               {existing: []client.Object{existing}, label: "others"},
		"one that has changed since":      {existing: []client.Object{existing}, version: "1", fails: true},
		"one that has been deleted since": {version: "7", fails: true},
	} {
		c := refusing(noRule, false, test.existing...)
		secret := &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"content": []byte("new")}}
		secret.ResourceVersion = test.version
		err := c.Apply(t.Context(), "one", secret)
		if (err != nil) != test.fails {
			t.Errorf("%s: %v", name, err)
		}
		if test.fails {
			continue
		}
		live := read(t.Context(), t, c.Client, client.ObjectKeyFromObject(secret))
		if string(live.Data["content"]) != "new" || live.Labels["installation"] != "one" || live.Labels["of"] != test.label {
			t.Errorf("%s: %+v", name, live)
		}
		again := &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"content": []byte("new")}}
		if err := c.Apply(t.Context(), "one", again); err != nil || again.ResourceVersion != live.ResourceVersion {
			t.Errorf("%s, again: version %s, %v", name, again.ResourceVersion, err)
		}
	}
}

// HC-02: without a rule, what an installation works without is left out, and the rule named; the rest is an error that names it. A quota
// is no missing rule.
func TestApplyWithoutRule(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{Namespace: "hub", Name: "a"}
	for name, test := range map[string]struct {
		object        client.Object
		reason        string
		fails, absent string
	}{
		"a policy": {object: &networkingv1.NetworkPolicy{ObjectMeta: meta}, reason: noRule, absent: policyRule},
		"a Secret": {object: &corev1.Secret{ObjectMeta: meta}, reason: noRule,
			fails: `the rule {apiGroups: [""], resources: [secrets]`},
		"a policy, a quota": {object: &networkingv1.NetworkPolicy{ObjectMeta: meta}, reason: "exceeded quota", fails: "exceeded quota"},
		"a Secret, a quota": {object: &corev1.Secret{ObjectMeta: meta}, reason: "exceeded quota", fails: "exceeded quota"},
	} {
		c := refusing(test.reason, true)
		err := c.Apply(t.Context(), "one", test.object)
		if (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && test.reason != noRule && strings.Contains(err.Error(), "the rule") {
			t.Errorf("%s: %v", name, err)
		}
		if slices.Contains(c.MissingRules(), policyRule) != (test.absent != "") {
			t.Errorf("%s: missing %v", name, c.MissingRules())
		}
	}
}

// HC-02: a kind that may not be watched is not listed, and left out if an installation works without it.
func TestUnwatchedKinds(t *testing.T) {
	t.Parallel()
	c := refusing(noRule, false)
	c.unwatched[policyKind] = true
	if err := c.Apply(t.Context(), "one", &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "hub", Name: "a"}}); err != nil {
		t.Error(err)
	}
	if left, err := c.Prune(t.Context(), "one"); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	want := []string{`{apiGroups: [""], resources: [secrets], verbs: [list, watch]}`,
		policyRule}
	if got := c.MissingRules(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
