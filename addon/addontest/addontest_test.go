package addontest_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon/addontest"
	"github.com/capstan-io/capstan/addon/config"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// own is a kind of an add-on's author.
type own struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              map[string]string `json:"spec"`
}

func (o *own) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

// AF-17: what an installation refers to is what the client has, however it is given.
func TestRead(t *testing.T) {
	t.Parallel()
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Own"}
	scheme := addontest.Scheme()
	scheme.AddKnownTypeWithName(kind, &own{})
	mine := &own{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: map[string]string{"a": "b"}}
	mine.SetGroupVersionKind(kind)
	for name, test := range map[string]struct {
		given client.Object
		into  client.Object
	}{
		"YAML": {addontest.Object(`{apiVersion: addon.open-cluster-management.io/v1beta1, kind: AddOnDeploymentConfig, metadata: {name: a, namespace: b},
			spec: {customizedVariables: []}}`), &addonv1beta1.AddOnDeploymentConfig{}},
		"typed": {&addonv1beta1.AddOnDeploymentConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}},
			&addonv1beta1.AddOnDeploymentConfig{}},
		"own":      {mine, &own{}},
		"built in": {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}, &corev1.ConfigMap{}},
	} {
		hub := addontest.ClientOf(scheme, test.given)
		found, err := config.Read(t.Context(), hub, addontest.Installation("cluster1", "hello", test.given), test.into)
		if !found || err != nil || test.into.GetName() != test.given.GetName() {
			t.Errorf("%s: %t, %v, %s", name, found, err, test.into.GetName())
		}
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(test.given), test.into); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func Example() {
	chosen := &addonv1beta1.AddOnDeploymentConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello"}}
	chosen.Spec.AgentInstallNamespace = "hello-system"
	hub := addontest.Client(chosen)
	namespace, err := config.InstallNamespace(hub)(context.Background(), addontest.Installation("cluster1", "hello", chosen))
	fmt.Println(namespace, err)
	// Output: hello-system <nil>
}
