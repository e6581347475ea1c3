package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

// W12: what a dry run reports of an object.
func TestDiff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after string
		want          []string
	}{
		"fields": {
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","resourceVersion":"1","labels":{"a":"1"}},"spec":{"replicas":1,"paused":true,"containers":[{"image":"a"},{"image":"b"}],"args":["a"]},"status":{"replicas":1}}`,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","resourceVersion":"2","labels":{"a":"1","b.c/d":"2"}},"spec":{"replicas":3,"containers":[{"image":"a"},{"image":"c"}],"args":["a","b"]},"status":{"replicas":2}}`,
			[]string{`metadata.labels["b.c/d"]: (none) -> "2"`, `spec.args: ["a"] -> ["a","b"]`, `spec.containers[1].image: "b" -> "c"`,
				`spec.paused: true -> (none)`, `spec.replicas: 1 -> 3`},
		},
		"what the agent adds": {
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"applied-fields.capstan.io/x":"{}"}}}`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":[],"annotations":{"open-cluster-management.io/config-spec-hash":"1"}}}`,
			nil,
		},
		"long": {
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":""}}`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"` + strings.Repeat("x", 1000) + `"}}`,
			[]string{`data.a: "" -> "` + strings.Repeat("x", 79) + `...`},
		},
		"secret": {
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","annotations":{"last":"c2VjcmV0"}},"data":{"a":"c2VjcmV0","b.c":"1"},"type":"Opaque"}`,
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","annotations":{"last":"c2VjcmV1"}},"data":{"a":"c2VjcmV1"},"type":"Other"}`,
			[]string{
				`data.a: changed (the values of a Secret are not shown)`, `data["b.c"]: changed (the values of a Secret are not shown)`,
				`metadata.annotations.last: changed (the values of a Secret are not shown)`, `type: "Opaque" -> "Other"`,
			},
		},
		"secret, all of it": {
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`,
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"a":"c2VjcmV1"}}`,
			[]string{`data: changed (the values of a Secret are not shown)`},
		},
	} {
		before, after := &unstructured.Unstructured{}, &unstructured.Unstructured{}
		for text, o := range map[string]*unstructured.Unstructured{test.before: before, test.after: after} {
			if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(test.want, Diff(before, after)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// WK-17: the fields that are named when an object is in dispute.
func TestChangedFields(t *testing.T) {
	t.Parallel()
	before, after := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	for text, o := range map[string]*unstructured.Unstructured{
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","resourceVersion":"1","labels":{"b.c/d":"1"},
			"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"1"}]},
			"spec":{"replicas":1,"containers":[{"image":"a"},{"image":"b"}],"args":["a"]},"status":{"replicas":1}}`: before,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","resourceVersion":"2",
			"annotations":{"applied-fields.capstan.io/x":"{}"}},
			"spec":{"replicas":3,"containers":[{"image":"a"},{"image":"c"}],"args":["a","b"]},"status":{"replicas":2}}`: after,
	} {
		if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{`metadata.annotations["applied-fields.capstan.io/x"]`, `metadata.labels["b.c/d"]`, "spec.args", "spec.containers[1].image",
		"spec.replicas", "metadata.ownerReferences"}
	var got []string
	for _, field := range ChangedFields(before, after) {
		got = append(got, field.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if same := ChangedFields(before, before.DeepCopy()); len(same) > 0 {
		t.Errorf("a copy differs in %v", same)
	}
}
