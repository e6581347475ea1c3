package klusterlet

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
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
