package managedfields

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// applies is an entry of a client that applies fields server-side.
func applies(manager, fields string) string {
	return strings.Replace(entry(manager, "", 1, fields), `"operation":"Update"`, `"operation":"Apply"`, 1)
}

// entry is one of metadata.managedFields, of a second.
func entry(manager, subresource string, second int, fields string) string {
	return fmt.Sprintf(`{"manager":%q,"operation":"Update","apiVersion":"apps/v1","subresource":%q,"time":"2026-01-01T00:00:%02dZ",
		"fieldsType":"FieldsV1","fieldsV1":%s}`, manager, subresource, second, fields)
}

// WK-17: who is named as the last writer of a disputed field.
func TestLastWriter(t *testing.T) {
	t.Parallel()
	const (
		replicas = `{"f:spec":{"f:replicas":{}}}`
		image    = `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{}}}}}}}`
		sidecar  = `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"proxy\"}":{".":{},"f:image":{}}}}}}}`
		elsewise = `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:name":{}}}}}}}`
		labels   = `{"f:metadata":{"f:labels":{".":{},"f:example.com/a":{}}}}`
		atomic   = `{"f:spec":{"f:selector":{}}}`
		values   = `{"f:metadata":{"f:finalizers":{"v:\"a\"":{}}}}`
	)
	imageOf := func(i int) manifest.Field {
		return manifest.Field{"spec", "template", "spec", "containers", i, "image"}
	}
	for name, test := range map[string]struct {
		field   manifest.Field
		entries []string
		want    string
	}{
		"an autoscaler": {manifest.Field{"spec", "replicas"}, []string{entry("work-agent", "", 9, image),
			entry("kube-controller-manager", "scale", 3, replicas)}, "kube-controller-manager (subresource scale)"},
		"the later of two": {manifest.Field{"spec", "replicas"},
			[]string{entry("late", "", 3, replicas), entry("early", "", 2, replicas)}, "late"},
		"one that came after an agent": {manifest.Field{"spec", "replicas"},
			[]string{entry("work-agent", "", 9, replicas), entry("kubectl-edit", "", 9, replicas)}, "kubectl-edit"},
		"another work": {manifest.Field{"spec", "replicas"}, []string{entry("work-agent-b", "", 9, replicas), entry("kubectl", "", 9, labels)},
			"work-agent-b"},
		"a controller that writes it with the status": {manifest.Field{"metadata", "labels", "example.com/a"},
			[]string{entry("work-agent", "", 9, replicas), entry("kube-controller-manager", "status", 3, labels)},
			"kube-controller-manager (subresource status)"},
		"an element by its key":         {imageOf(1), []string{entry("a", "", 9, sidecar), entry("b", "", 1, image)}, "b"},
		"another field of the element":  {imageOf(1), []string{entry("a", "", 1, elsewise)}, ""},
		"a list of another length":      {manifest.Field{"spec", "template", "spec", "containers"}, []string{entry("a", "", 1, image)}, "a"},
		"a label":                       {manifest.Field{"metadata", "labels", "example.com/a"}, []string{entry("a", "", 1, labels)}, "a"},
		"another label":                 {manifest.Field{"metadata", "labels", "b"}, []string{entry("a", "", 1, labels)}, ""},
		"a field of an atomic object":   {manifest.Field{"spec", "selector", "app"}, []string{entry("a", "", 1, atomic)}, "a"},
		"an element by its value":       {manifest.Field{"metadata", "finalizers", 0}, []string{entry("a", "", 1, values)}, "a"},
		"another element":               {manifest.Field{"metadata", "finalizers", 1}, []string{entry("a", "", 1, values)}, ""},
		"an element that is not there":  {manifest.Field{"metadata", "finalizers", 2}, []string{entry("a", "", 1, values)}, ""},
		"an entry that cannot be read":  {manifest.Field{"spec", "replicas"}, []string{entry("a", "", 1, `{"x:":{}}`)}, ""},
		"nobody: the field was removed": {manifest.Field{"spec", "paused"}, []string{entry("a", "", 1, replicas)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := &unstructured.Unstructured{}
			content := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","finalizers":["a","b"],"managedFields":[`
			for i, e := range test.entries {
				if i > 0 {
					content += ","
				}
				content += e
			}
			content += `]},"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"proxy","image":"a"},{"name":"web","image":"b"}]}}}}`
			if err := json.Unmarshal([]byte(content), &live.Object); err != nil {
				t.Fatal(err)
			}
			if got := LastWriter(live, []manifest.Field{test.field}); got.String() != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// WK-05: whose the keys of metadata are that a manifest does not name any more.
func TestOfOthers(t *testing.T) {
	t.Parallel()
	label, annotation := manifest.Key{Field: manifest.Labels, Name: "a/b.c"}, manifest.Key{Field: manifest.Annotations, Name: "a/b.c"}
	finalizer, owner := manifest.Key{Field: manifest.Finalizers, Name: "f"}, manifest.Key{Field: manifest.OwnerReferences, Name: "u"}
	all := sets.New(label, annotation, finalizer, owner)
	const everything = `{"f:metadata":{"f:labels":{".":{},"f:a/b.c":{}},"f:annotations":{"f:a/b.c":{}},
		"f:finalizers":{".":{},"v:\"f\"":{}},"f:ownerReferences":{"k:{\"uid\":\"u\"}":{".":{},"f:name":{}}}}}`
	for name, test := range map[string]struct {
		entries []string
		want    sets.Set[manifest.Key]
	}{
		"nobody":                 {nil, nil},
		"the agent":              {[]string{entry("work-agent", "", 1, everything)}, nil},
		"an agent of SSA":        {[]string{entry("work-agent-b", "", 1, everything)}, nil},
		"the original's agent":   {[]string{entry("work", "", 1, everything)}, nil},
		"another client":         {[]string{entry("kubectl", "", 1, everything)}, all},
		"with the status":        {[]string{entry("controller", "status", 1, everything)}, all},
		"another and the agent":  {[]string{entry("work-agent", "", 9, everything), entry("kubectl", "", 1, everything)}, all},
		"a name like an agent's": {[]string{entry("worker", "", 1, everything)}, all},
		"one each": {[]string{entry("a", "", 1, `{"f:metadata":{"f:labels":{"f:a/b.c":{}}}}`),
			entry("b", "", 1, `{"f:metadata":{"f:finalizers":{"v:\"f\"":{}}}}`)}, sets.New(label, finalizer)},
		"the fields, but not the keys": {[]string{entry("a", "", 1, `{"f:metadata":{"f:labels":{".":{},"f:a":{}},"f:finalizers":{".":{}}}}`)}, nil},
		"other keys of these fields": {[]string{entry("a", "", 1,
			`{"f:metadata":{"f:labels":{"f:b.c":{}},"f:finalizers":{"v:\"g\"":{}},"f:ownerReferences":{"k:{\"uid\":\"v\"}":{}}}}`)}, nil},
		"an entry that cannot be read": {[]string{entry("a", "", 1, `{"x:":{}}`)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := &unstructured.Unstructured{}
			content := `{"metadata":{"managedFields":[` + strings.Join(test.entries, ",") + `]}}`
			if err := json.Unmarshal([]byte(content), &live.Object); err != nil {
				t.Fatal(err)
			}
			if got := OfOthers(live, all); !got.Equal(test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// WK-05: what another work has applied under ServerSideApply is the agents', and known as such.
func TestAgentsApply(t *testing.T) {
	t.Parallel()
	const replicas = `{"f:spec":{"f:replicas":{}}}`
	for name, test := range map[string]struct {
		entry string
		want  bool
	}{
		"an agent":               {applies("work-agent", replicas), true},
		"with a name of its own": {applies("work-agent-b", replicas), true},
		"another field":          {applies("work-agent", `{"f:spec":{"f:paused":{}}}`), false},
		"an update":              {entry("work-agent", "", 1, replicas), false},
		"another client":         {applies("kubectl", replicas), false},
	} {
		live := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(`{"metadata":{"managedFields":[`+test.entry+`]},"spec":{"replicas":3}}`), &live.Object); err != nil {
			t.Fatal(err)
		}
		if got := AgentsApply(live, manifest.Field{"spec", "replicas"}); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

// WK-05: whose the content is that a manifest does not name any more.
func TestHaveOthers(t *testing.T) {
	t.Parallel()
	const (
		replicas = `{"f:spec":{"f:replicas":{}}}`
		surge    = `{"f:spec":{"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{}}}}}`
		image    = `{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{}}}}}`
		atomic   = `{"f:spec":{"f:selector":{}}}`
	)
	for name, test := range map[string]struct {
		field manifest.Field
		entry string
		want  bool
	}{
		"by a subresource":     {manifest.Field{"spec", "replicas"}, entry("kube-controller-manager", "scale", 1, replicas), true},
		"another client":       {manifest.Field{"spec", "replicas"}, entry("helm", "", 1, replicas), false},
		"server-side":          {manifest.Field{"spec", "replicas"}, applies("kubectl", replicas), true},
		"an agent of SSA":      {manifest.Field{"spec", "replicas"}, applies("work-agent-b", replicas), false},
		"the agent":            {manifest.Field{"spec", "replicas"}, entry("work-agent", "", 1, replicas), false},
		"the original's agent": {manifest.Field{"spec", "replicas"}, entry("work", "", 1, replicas), false},
		"another field":        {manifest.Field{"spec", "paused"}, applies("kubectl", replicas), false},
		"a field in it":        {manifest.Field{"spec", "strategy"}, applies("kubectl", surge), true},
		"a field beside it": {manifest.Field{"spec", "strategy", "rollingUpdate", "maxUnavailable"},
			applies("kubectl", surge), false},
		"a field of an element":           {manifest.Field{"spec", "containers", 1, "image"}, applies("kubectl", image), true},
		"an element":                      {manifest.Field{"spec", "containers", 1}, applies("kubectl", image), true},
		"another element":                 {manifest.Field{"spec", "containers", 0}, applies("kubectl", image), false},
		"a field of what is one value":    {manifest.Field{"spec", "selector", "app"}, applies("kubectl", atomic), false},
		"an entry that cannot be read":    {manifest.Field{"spec", "replicas"}, applies("kubectl", `{"x:":{}}`), false},
		"an element of a list without it": {manifest.Field{"spec", "containers", 2}, applies("kubectl", image), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := &unstructured.Unstructured{}
			content := `{"metadata":{"managedFields":[` + test.entry + `]},"spec":{"replicas":3,"selector":{"app":"web"},
				"strategy":{"rollingUpdate":{"maxSurge":1,"maxUnavailable":1}},"containers":[{"name":"proxy","image":"a"},{"name":"web","image":"b"}]}}`
			if err := json.Unmarshal([]byte(content), &live.Object); err != nil {
				t.Fatal(err)
			}
			if got := HaveOthers(live, test.field); got != test.want {
				t.Errorf("%t, want %t", got, test.want)
			}
		})
	}
}
