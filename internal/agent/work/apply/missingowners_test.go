package apply

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubetesting "k8s.io/client-go/testing"
)

// WK-01: owners are applied unless it is known that the garbage collector would find none.
func TestIsMissingOwner(t *testing.T) {
	t.Parallel()
	here := func(namespace, apiVersion, kind, name string) runtime.Object {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion(apiVersion)
		o.SetKind(kind)
		o.SetNamespace(namespace)
		o.SetName(name)
		o.SetUID(types.UID("uid-of-" + name))
		return o
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}})
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Node"}, meta.RESTScopeRoot)
	objects := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(),
		here("shop", "v1", "ConfigMap", "settings"), here("", "v1", "Node", "one"))
	objects.PrependReactor("get", "secrets", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "token", errors.New("no right"))
	})
	a := &applier{objects: objects, mapper: mapper}
	owner := func(apiVersion, kind, name string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid}
	}
	settings, node := owner("v1", "ConfigMap", "settings", "uid-of-settings"), owner("v1", "Node", "one", "uid-of-one")
	for name, test := range map[string]struct {
		namespace string
		owner     metav1.OwnerReference
		want      bool
	}{
		"it is there":                     {"shop", settings, false},
		"it is in no namespace":           {"shop", node, false},
		"both are in no namespace":        {"", node, false},
		"another of the name":             {"shop", owner("v1", "ConfigMap", "settings", "uid-elsewhere"), true},
		"none of the name":                {"shop", owner("v1", "ConfigMap", "web", "uid-of-settings"), true},
		"another namespace":               {"bank", settings, true},
		"owned by what is in a namespace": {"", settings, true},
		"another version of its kind":     {"shop", owner("v2", "ConfigMap", "settings", "uid-of-settings"), false},
		"no such kind":                    {"shop", owner("example.com/v1", "Widget", "w", "uid-of-w"), true},
		"it may not be read":              {"shop", owner("v1", "Secret", "token", "uid-of-token"), false},
		"no uid":                          {"shop", owner("v1", "ConfigMap", "settings", ""), false},
		"no version":                      {"shop", owner("a/b/c", "ConfigMap", "settings", "uid-of-settings"), false},
		"to be removed":                   {"shop", owner("v1", "ConfigMap", "settings", "uid-elsewhere-"), false},
	} {
		if got := a.isMissingOwner(t.Context(), test.namespace, test.owner); got != test.want {
			t.Errorf("%s: missing is %v", name, got)
		}
	}
}

// WK-01: what is left out is remembered, and the work's own reference is applied without a question.
func TestLeaveOutMissingOwners(t *testing.T) {
	t.Parallel()
	own := metav1.OwnerReference{APIVersion: "work.open-cluster-management.io/v1", Kind: "AppliedManifestWork", Name: "w", UID: "uid-of-w"}
	gone := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Widget", Name: "gone", UID: "1"}
	required := &unstructured.Unstructured{}
	required.SetOwnerReferences([]metav1.OwnerReference{gone, own})
	task := &task{manifestResult: &manifestResult{missingOwners: []string{"of the pass before"}}, owner: own, required: required}
	(&applier{mapper: meta.NewDefaultRESTMapper(nil)}).leaveOutMissingOwners(t.Context(), task)
	if owners := required.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != own.UID {
		t.Errorf("applied with %v", owners)
	}
	if missing := task.missingOwners; len(missing) != 1 || missing[0] != "Widget gone with uid 1" {
		t.Errorf("left out: %q", missing)
	}
}
