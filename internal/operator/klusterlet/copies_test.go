package klusterlet

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientset "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
)

// KL-27: the namespace of an agent gets the Secret to pull images with as part of its Klusterlet, and not a second time.
func TestCopiesFor(t *testing.T) {
	t.Parallel()
	namespace := func(name string, labels map[string]string) corev1.Namespace {
		return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	namespaces := []corev1.Namespace{namespace("operator", nil), namespace("addon", nil),
		namespace("agent", map[string]string{fleet.LabelKlusterlet: "klusterlet"})}
	got := ""
	for _, object := range copiesFor("operator", namespaces, &corev1.Secret{}, &corev1.ConfigMap{}) {
		got += fmt.Sprintf("%T in %s;", object, object.GetNamespace())
	}
	if want := "*v1.Secret in addon;*v1.ConfigMap in addon;*v1.ConfigMap in agent;"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// KL-27: what the namespace of the operator no longer has goes from marked namespaces, too: a credential that was taken back, or a TLS
// profile that holds no longer. What the operator has not made stays, and everything where it may not read the Secret.
func TestCopiesOfWhatIsGone(t *testing.T) {
	t.Parallel()
	const secret, profile = fleet.SecretImagePullCredentials, fleet.ConfigMapTLSProfile
	mine := map[string]string{fleet.LabelCreatedByKlusterlet: sharedInstallation}
	meta := func(namespace, name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
	}
	for name, test := range map[string]struct {
		object client.Object
		denied bool
		gone   bool
	}{
		"a Secret":                            {object: &corev1.Secret{ObjectMeta: meta("addon", secret, mine)}, gone: true},
		"a TLS profile":                       {object: &corev1.ConfigMap{ObjectMeta: meta("addon", profile, mine)}, gone: true},
		"of a user":                           {object: &corev1.Secret{ObjectMeta: meta("addon", secret, nil)}},
		"with another name":                   {object: &corev1.Secret{ObjectMeta: meta("addon", "other", mine)}},
		"in a namespace that is not marked":   {object: &corev1.Secret{ObjectMeta: meta("former", secret, mine)}},
		"of a Secret that may not be read":    {object: &corev1.Secret{ObjectMeta: meta("addon", secret, mine)}, denied: true},
		"TLS profile, where Secrets are kept": {object: &corev1.ConfigMap{ObjectMeta: meta("addon", profile, mine)}, denied: true, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			operator := clientset.NewClientset()
			if test.denied {
				operator.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, secret,
						errors.New(`User "operator" cannot get resource "secrets"`))
				})
			}
			marked := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "addon", Labels: map[string]string{
				fleet.LabelAddOnAgentNamespace: "true"}}}
			api := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(marked, test.object).Build()
			c := &Controller{Operator: &frame.Operator{
				Options: frame.Options{Namespace: "operator", PullSecret: secret}, Client: api,
				Management: &apply.Cluster{Client: api, Options: apply.Options{Label: fleet.LabelCreatedByKlusterlet, Scheme: Scheme()}},
				Secrets:    frame.NewSecrets(t.Context(), operator.CoreV1(), rightstest.Reviewer{Rules: []rbacv1.PolicyRule{}}, nil),
			}}
			if err := (copies{c}).copyAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := api.Get(t.Context(), client.ObjectKeyFromObject(test.object), test.object)
			if client.IgnoreNotFound(err) != nil || apierrors.IsNotFound(err) != test.gone {
				t.Errorf("gone: %v", err)
			}
		})
	}
}
