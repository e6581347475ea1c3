package serverside

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// recorder records requests. It refuses the first that is applied, and what it has other errors for.
type recorder struct {
	Client
	requests              []string
	patch                 []byte // the last one
	applied, patched, del error
}

func (r *recorder) Apply(_ context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	r.requests = append(r.requests, "apply "+object.GetResourceVersion())
	err := r.applied
	r.applied = nil
	return object, err
}

func (r *recorder) Patch(_ context.Context, object *unstructured.Unstructured, patch []byte) (*unstructured.Unstructured, error) {
	r.requests, r.patch = append(r.requests, "patch"), patch
	return object, r.patched
}

func (r *recorder) Delete(_ context.Context, object *unstructured.Unstructured) error {
	r.requests = append(r.requests, "delete "+object.GetResourceVersion())
	return r.del
}

func objectOf(kind schema.GroupKind, version string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind.WithVersion("v1"))
	object.SetName("a")
	object.SetResourceVersion(version)
	return object
}

// CA-06: an object of which something has to change that never does is replaced, unless that would delete what users have stored.
func TestApplyReplaces(t *testing.T) {
	t.Parallel()
	denied := apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New(`User "x" cannot delete resource "y"`))
	for name, test := range map[string]struct {
		kind     schema.GroupKind
		version  string
		refused  error
		requests string
		fails    string
	}{
		"a Deployment": {kind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, requests: "apply , delete , apply "},
		"a version of a binding": {kind: schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}, version: "7",
			requests: "apply 7, delete 7, apply "},
		"one that is gone meanwhile": {kind: schema.GroupKind{Kind: "Service"},
			refused: apierrors.NewNotFound(schema.GroupResource{}, "a"), requests: "apply , delete , apply "},
		"one that may not be deleted": {kind: schema.GroupKind{Kind: "Service"}, refused: denied, requests: "apply , delete ",
			fails: "replace it, because what has to change is immutable"},
		"a namespace": {kind: schema.GroupKind{Kind: "Namespace"}, requests: "apply ", fails: "field is immutable"},
		"a volume":    {kind: schema.GroupKind{Kind: "PersistentVolumeClaim"}, requests: "apply ", fails: "field is immutable"},
		"a definition": {kind: schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}, requests: "apply ",
			fails: "field is immutable"},
		"a class of pods": {kind: schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PriorityClass"}, requests: "apply ",
			fails: "field is immutable"},
		"a hub": {kind: schema.GroupKind{Group: "operator.open-cluster-management.io", Kind: "ClusterManager"}, requests: "apply ",
			fails: "field is immutable"},
		"an agent": {kind: schema.GroupKind{Group: "operator.open-cluster-management.io", Kind: "Klusterlet"}, requests: "apply ",
			fails: "field is immutable"},
	} {
		server := &recorder{del: test.refused, applied: apierrors.NewInvalid(test.kind, "a",
			field.ErrorList{field.Invalid(field.NewPath("spec", "scope"), "x", "field is immutable")})}
		_, err := Apply(t.Context(), server, objectOf(test.kind, test.version))
		if test.fails == "" && err != nil || test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)) {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.Join(server.requests, ", "); got != test.requests {
			t.Errorf("%s: %s, want %s", name, got, test.requests)
		}
	}
}

// CA-06: the fields of other managers are taken over, but for those of a namespace; who may not change them applies all the same.
func TestAdopt(t *testing.T) {
	t.Parallel()
	denied := apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New(`User "x" cannot patch resource "y"`))
	conflict := apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("it has changed"))
	for name, test := range map[string]struct {
		kind     string
		others   sets.Set[string]
		refused  error
		requests string
		fails    bool
	}{
		"of another installer": {kind: "Secret", others: sets.New("helm"), requests: "patch"},
		"of nobody else":       {kind: "Secret"},
		"of a namespace":       {kind: "Namespace", others: sets.New("helm")},
		"without permission":   {kind: "Secret", others: sets.New("helm"), refused: denied, requests: "patch"},
		"of one that is gone": {kind: "Secret", others: sets.New("helm"),
			refused: apierrors.NewNotFound(schema.GroupResource{}, "a"), requests: "patch"},
		"of one that has changed": {kind: "Secret", others: sets.New("helm"), refused: conflict, requests: "patch", fails: true},
	} {
		live := objectOf(schema.GroupKind{Kind: test.kind}, "7")
		live.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "helm", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:team":{}}}}`)}})
		server := &recorder{patched: test.refused}
		adopted, err := Adopt(t.Context(), server, "capstan", live, test.others)
		if (err != nil) != test.fails || !test.fails && adopted == nil {
			t.Errorf("%s: %v, %v", name, adopted, err)
		}
		if got := strings.Join(server.requests, ", "); got != test.requests {
			t.Errorf("%s: %s, want %s", name, got, test.requests)
		}
	}
}

// All that a manager has is taken over: what it has applied, and what it has set otherwise. That of others stays theirs.
func TestAdoptsAll(t *testing.T) {
	t.Parallel()
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, label string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:` + label + `":{}}}}`)}
	}
	ofHelm := []metav1.ManagedFieldsEntry{entry("helm", apply, "a"), entry("helm", update, "b"), entry("kubectl-edit", update, "c")}
	for name, test := range map[string]struct {
		own    []metav1.ManagedFieldsEntry
		others sets.Set[string]
		want   string
	}{
		"never applied here": {others: sets.New("helm"), want: `"f:a":{},"f:b":{}`},
		"applied here before": {own: []metav1.ManagedFieldsEntry{entry("capstan", apply, "d")}, others: sets.New("helm"),
			want: `"f:a":{},"f:b":{},"f:d":{}`},
		"set here otherwise, too": {own: []metav1.ManagedFieldsEntry{entry("capstan", apply, "d"), entry("capstan", update, "e")},
			others: sets.New("helm", "capstan"), want: `"f:a":{},"f:b":{},"f:d":{},"f:e":{}`},
	} {
		live := objectOf(schema.GroupKind{Kind: "Secret"}, "7")
		live.SetManagedFields(append(test.own, ofHelm...))
		server := &recorder{}
		if _, err := Adopt(t.Context(), server, "capstan", live, test.others); err != nil {
			t.Fatal(err)
		}
		var patch []struct{ Value json.RawMessage }
		var entries []metav1.ManagedFieldsEntry
		if err := json.Unmarshal(server.patch, &patch); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(patch[0].Value, &entries); err != nil {
			t.Fatal(err)
		}
		left := map[string]string{}
		for _, entry := range entries {
			left[entry.Manager+" "+string(entry.Operation)] = entry.FieldsV1.String()
		}
		want := map[string]string{"capstan Apply": `{"f:metadata":{"f:labels":{` + test.want + `}}}`,
			"kubectl-edit Update": `{"f:metadata":{"f:labels":{"f:c":{}}}}`}
		if !maps.Equal(left, want) {
			t.Errorf("%s: %v, want %v", name, left, want)
		}
	}
}

// What the API server refuses counts as immutable if nothing else is wrong with it.
func TestImmutable(t *testing.T) {
	t.Parallel()
	selector := field.Invalid(field.NewPath("spec", "selector"), "a", "field is immutable")
	family := field.Invalid(field.NewPath("spec", "clusterIPs").Index(0), "10.0.0.1",
		"expected an IPv6 value as indicated by `ipFamilies[0]`")
	port := field.Invalid(field.NewPath("spec", "ports").Index(0), 0, "must be between 1 and 65535, inclusive")
	for name, test := range map[string]struct {
		causes field.ErrorList
		want   bool
	}{
		"the selector of a Deployment": {field.ErrorList{selector}, true},
		"the family of a Service":      {field.ErrorList{family}, true},
		"a port":                       {field.ErrorList{port}, false},
		"a port, too":                  {field.ErrorList{family, port}, false},
		"nothing in particular":        {nil, false},
	} {
		err := apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "work-webhook", test.causes)
		if got := immutable(err); got != test.want {
			t.Errorf("%s: %t: %v", name, got, err)
		}
	}
}
