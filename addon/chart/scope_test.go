package chart

import (
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
)

// AF-18: the clients of client-go take a namespace for exactly those kinds that live in one.
func TestOutside(t *testing.T) {
	t.Parallel()
	clients, seen := reflect.TypeFor[kubernetes.Interface](), 0
	for i := range clients.NumMethod() {
		group := clients.Method(i).Type.Out(0)
		for j := range group.NumMethod() {
			getter := group.Method(j).Type
			if getter.NumOut() != 1 || getter.Out(0).Kind() != reflect.Interface {
				continue
			}
			kind, ok := kindOf(t, getter.Out(0))
			if !ok {
				continue
			}
			seen++
			if namespaced := getter.NumIn() == 1; namespaced == outside[kind] {
				t.Errorf("%s: outside of namespaces %t, and client-go takes a namespace: %t", kind, outside[kind], namespaced)
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d clients were found", seen)
	}
}

// kindOf is what a client creates.
func kindOf(t *testing.T, client reflect.Type) (schema.GroupKind, bool) {
	t.Helper()
	create, ok := client.MethodByName("Create")
	if !ok {
		return schema.GroupKind{}, false
	}
	object, ok := reflect.New(create.Type.In(1).Elem()).Interface().(runtime.Object)
	if !ok {
		t.Fatalf("%s creates no object", client)
	}
	kinds, _, err := kubernetesscheme.Scheme.ObjectKinds(object)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(kinds, func(kind schema.GroupVersionKind) bool { return kind.Group != "" || len(kinds) == 1 })
	return kinds[max(at, 0)].GroupKind(), true
}
