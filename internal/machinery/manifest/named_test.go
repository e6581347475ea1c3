package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

// WK-05: what is written down of a manifest makes Merge remove the same fields as the manifest itself does.
func TestLastNamed(t *testing.T) {
	t.Parallel()
	read := func(text string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		return o
	}
	const last = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":3,"paused":false,"minReadySeconds":5,
		"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web","old":"1"}},"spec":{"hostNetwork":true,"nodeSelector":{"a":"b"},
		"tolerations":[{"key":"a","operator":"Exists"}],
		"containers":[{"name":"web","image":"web:1","args":["a"],"env":[{"name":"A","value":"secret"}],"ports":[{"containerPort":80,"hostPort":80}]},{"name":"two","image":"two:1"}]}}}}`
	const next = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{
		"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{
		"tolerations":[{"key":"a"}],
		"containers":[{"name":"web","image":"web:1","ports":[{"containerPort":80}]}]}}}}`
	live := strings.Replace(last, `"replicas":3`, `"replicas":3,"revisionHistoryLimit":10`, 1)
	live = strings.Replace(live, `"image":"web:1"`, `"image":"web:1","imagePullPolicy":"Always"`, 1)
	fields := NamedFields(read(last))
	if strings.Contains(fields, "secret") || strings.Contains(fields, "web:1") || !strings.Contains(fields, `"minReadySeconds":true`) {
		t.Errorf("the fields are %s", fields)
	}
	want, _ := Merge(read(next), read(live), read(last))
	got, changed := Merge(read(next), read(live), LastNamed(fields))
	if diff := cmp.Diff(want.Object, got.Object); diff != "" || !changed {
		t.Error(diff)
	}
	if _, found, _ := unstructured.NestedFieldNoCopy(got.Object, "spec", "minReadySeconds"); found {
		t.Error("a field that the manifest does not name any more is still there")
	}
	if limit, found, _ := unstructured.NestedInt64(got.Object, "spec", "revisionHistoryLimit"); !found || limit != 10 {
		t.Error("a field that the manifest never named has gone")
	}
}

// WK-05: which fields of an object a manifest names by what is written down of it.
func TestNames(t *testing.T) {
	t.Parallel()
	read := func(text string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		return o
	}
	live := read(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":3,"paused":true,
		"selector":{"matchLabels":{"app":"web"}},"template":{"spec":{"tolerations":[{"key":"a"}],
		"containers":[{"name":"proxy","image":"proxy:1"},{"name":"web","image":"web:1","args":["a"]}]}}}}`)
	named := LastNamed(NamedFields(read(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":1,
		"selector":{"matchLabels":{"app":"web"}},"template":{"spec":{"tolerations":[{"key":"a"}],
		"containers":[{"name":"web","image":"web:2"}]}}}}`)))
	named.SetGroupVersionKind(live.GroupVersionKind())
	pod := Field{"spec", "template", "spec"}
	containers, tolerations := pod.inside("containers"), pod.inside("tolerations")
	for name, test := range map[string]struct {
		field Field
		want  bool
	}{
		"a field":                               {Field{"spec", "replicas"}, true},
		"another field":                         {Field{"spec", "paused"}, false},
		"something that a field is in":          {pod, true},
		"an element":                            {containers.inside(1), true},
		"another element":                       {containers.inside(0), false},
		"an element that is not there":          {containers.inside(2), false},
		"a field of an element":                 {containers.inside(1).inside("image"), true},
		"another field of an element":           {containers.inside(1).inside("args"), false},
		"what is one value":                     {Field{"spec", "selector"}, true},
		"a part of what is one value":           {Field{"spec", "selector", "matchLabels", "app"}, false},
		"a list whose elements have no names":   {tolerations, true},
		"an element of a list that has no name": {tolerations.inside(0).inside("key"), false},
	} {
		if got := Names(named, live, test.field); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

// WK-05: the same of keys, whose values are not written down.
func TestLastNamedKeys(t *testing.T) {
	t.Parallel()
	for name, metadata := range map[string]string{
		"none":        ``,
		"all":         `"labels":{"a":"secret","b":""},"annotations":{"c":"secret"},"finalizers":["g","f"],"ownerReferences":[{"uid":"1","name":"secret"}]`,
		"removals":    `"labels":{"a-":"","b":"1","b-":""},"ownerReferences":[{"uid":"1-"}]`,
		"the agent's": `"annotations":{"applied-fields.capstan.io/1":"secret","open-cluster-management.io/config-spec-hash":"secret"}`,
		"no lists":    `"finalizers":"f","ownerReferences":{"uid":"1"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			last := &unstructured.Unstructured{}
			text := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{` + metadata + `}}`
			if err := json.Unmarshal([]byte(text), &last.Object); err != nil {
				t.Fatal(err)
			}
			fields := NamedFields(last)
			if strings.Contains(fields, "secret") {
				t.Errorf("the fields are %s", fields)
			}
			read := &unstructured.Unstructured{}
			if fields != "" {
				read = LastNamed(fields)
			}
			if want, got := KeysOf(last), KeysOf(read); !want.Equal(got) || (fields == "") != (len(want) == 0) {
				t.Errorf("%s names %v, want %v", fields, got, want)
			}
		})
	}
}

// Of many objects there is nothing to write down, and of none more than there is room for.
func TestNamedFieldsSize(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"key":"value"}}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"type":"Opaque","stringData":{"key":"value"}}`,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`,
	} {
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		if fields := NamedFields(o); fields != "" {
			t.Errorf("%s: %s", text, fields)
		}
	}
	many := map[string]any{}
	for i := range 5000 {
		many[fmt.Sprintf("field%d", i)] = map[string]any{"inner": int64(i)}
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Big",
		"spec": map[string]any{"a": int64(1), "many": many}}}
	if fields, want := NamedFields(o), `{"spec":{"a":true,"many":true}}`; fields != want {
		t.Errorf("%.200s, want %s", fields, want)
	}
	labels := map[string]string{}
	for i := range 5000 {
		labels[fmt.Sprintf("label%d", i)] = ""
	}
	o.SetLabels(labels)
	o.SetFinalizers([]string{"f"})
	if fields, want := NamedFields(o), `{"metadata":{"finalizers":["f"]},"spec":{"a":true,"many":true}}`; fields != want {
		t.Errorf("%.200s, want %s", fields, want)
	}
	for _, text := range []string{"", "null", "{", "[]", "3"} {
		if last := LastNamed(text); last != nil {
			t.Errorf("%q is taken for %v", text, last.Object)
		}
	}
}
