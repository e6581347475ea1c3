package direct

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	twoFields   = `{"f:spec":{"f:hubAcceptsClient":{},"f:taints":{}}}`
	otherOrder  = `{"f:spec":{"f:taints":{},"f:hubAcceptsClient":{}}}`
	moreFields  = `{"f:spec":{"f:hubAcceptsClient":{},"f:taints":{}},"f:metadata":{}}`
	otherNames  = `{"f:spec":{"f:hubAcceptsClient":{},"f:leases":{}}}`
	otherDepths = `{"f:spec":{"f:hubAcceptsClient":{"f:taints":{}}}}`
	withValue   = `{"f:spec":{"f:hubAcceptsClient":true,"f:taints":{}}}`
)

// Objects share the trees of managed fields that are equal, and each keeps its own content.
func TestManagedFieldsAreShared(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first, second string
		shared        bool
	}{
		"equal":               {twoFields, twoFields, true},
		"in another order":    {twoFields, otherOrder, true},
		"with one more field": {twoFields, moreFields, false},
		"with one field less": {moreFields, twoFields, false},
		"with another field":  {twoFields, otherNames, false},
		"of another depth":    {twoFields, otherDepths, false},
		"with a value":        {twoFields, withValue, false},
		"both with a value":   {withValue, withValue, false},
		"empty":               {`{}`, `{}`, true},
		"of no object":        {`[]`, `[]`, false},
		"large":               {withFields(largestTree), withFields(largestTree), true},
		"too large":           {withFields(largestTree + 1), withFields(largestTree + 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trees := newFieldTrees()
			first, second := managed(t, test.first), managed(t, test.second)
			before := second.DeepCopy()
			trees.share(first)
			trees.share(second)
			if !reflect.DeepEqual(second, before) {
				t.Errorf("%v has become %v", before, second)
			}
			if shared := sameTree(treeOf(first), treeOf(second)); shared != test.shared {
				t.Errorf("shared: %t, want %t", shared, test.shared)
			}
		})
	}
}

// Trees of the same hash are told apart.
func TestTreesOfOneHash(t *testing.T) {
	t.Parallel()
	trees := newFieldTrees()
	object := managed(t, twoFields)
	hash, _ := trees.hash(treeOf(object).(map[string]any))
	trees.recent.Add(hash, treeOf(managed(t, otherNames)))
	trees.share(object)
	if !reflect.DeepEqual(object, managed(t, twoFields)) {
		t.Errorf("the fields are %v", object)
	}
}

func managed(t *testing.T, fields string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	err := json.Unmarshal([]byte(`{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a","managedFields":[
		{"manager":"a","operation":"Update","fieldsV1":`+fields+`}]}}`), &object.Object)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// withFields is a tree of so many fields, one below the other.
func withFields(n int) string { return strings.Repeat(`{"f:a":`, n) + "{}" + strings.Repeat("}", n) }

func treeOf(object *unstructured.Unstructured) any {
	entries, _, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", "managedFields")
	return entries.([]any)[0].(map[string]any)["fieldsV1"]
}

func sameTree(a, b any) bool {
	first, isFirst := a.(map[string]any)
	second, isSecond := b.(map[string]any)
	return isFirst && isSecond && reflect.ValueOf(first).Pointer() == reflect.ValueOf(second).Pointer()
}
