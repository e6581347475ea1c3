package override_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/manifest/override"
)

var berlin = override.Cluster{
	Name:   "berlin",
	Labels: map[string]string{"size": "3", "env": "prod", "odd": `", "evil": "`},
	Claims: map[string]string{"region": "eu-1", "nodes": `{"max":5}`, "gpu": "true"},
}

const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"a"},
	"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","image":"y"}]}}}}`

// Gap W8: where values come from, which types they have, and which manifests and clusters are changed.
func TestApply(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, overrides string
		path            string
		want            any
	}{
		{"nothing", "", "spec.replicas", 1.0},
		{"value", "- set: [{path: /spec/replicas, value: 4}]", "spec.replicas", 4.0},
		{"name", "- set: [{path: /metadata/labels/cluster, clusterName: true}]", "metadata.labels.cluster", "berlin"},
		{"label", "- set: [{path: /spec/replicas, label: size, type: integer}]", "spec.replicas", 3.0},
		{"label as text", "- set: [{path: /metadata/labels/size, label: size}]", "metadata.labels.size", "3"},
		{"label stays text", "- set: [{path: /metadata/labels/odd, label: odd}]", "metadata.labels.odd", `", "evil": "`},
		{"claim", "- set: [{path: /metadata/annotations/region, claim: region}]", "metadata.annotations.region", "eu-1"},
		{"claim of JSON", "- set: [{path: /spec/nodes, claim: nodes, type: json}]", "spec.nodes", map[string]any{"max": 5.0}},
		{"boolean", "- set: [{path: /spec/gpu, claim: gpu, type: boolean}]", "spec.gpu", true},
		{"number", "- set: [{path: /spec/gpu, label: size, type: number}]", "spec.gpu", 3.0},
		{"list", "- set: [{path: /spec/replicas, byCluster: {berlin: 7, oslo: 2}}]", "spec.replicas", 7.0},
		{"default", "- set: [{path: /spec/replicas, label: none, type: integer, default: 2}]", "spec.replicas", 2.0},
		{"default of a list", "- set: [{path: /spec/replicas, byCluster: {oslo: 2}, default: 9}]", "spec.replicas", 9.0},
		{"element", "- set: [{path: /spec/template/spec/containers/1, value: {name: c}}]", "spec.template.spec.containers",
			[]any{map[string]any{"name": "a", "image": "x"}, map[string]any{"name": "c"}}},
		{"in an element", "- set: [{path: /spec/template/spec/containers/0/image, claim: region}]", "spec.template.spec.containers",
			[]any{map[string]any{"name": "a", "image": "eu-1"}, map[string]any{"name": "b", "image": "y"}}},
		{"merge patch", "- mergePatch: {spec: {replicas: null, paused: true}}", "spec.paused", true},
		{"JSON patch", "- jsonPatch: [{op: replace, path: /spec/replicas, value: 5}]", "spec.replicas", 5.0},
		{"one after the other", "- set: [{path: /spec/replicas, value: 2}]\n- jsonPatch: [{op: test, path: /spec/replicas, value: 2}, {op: replace, path: /spec/replicas, value: 6}]",
			"spec.replicas", 6.0},
		{"this manifest", "- {manifest: {kind: Deployment, name: web, namespace: a, apiVersion: apps/v1}, set: [{path: /spec/replicas, value: 2}]}", "spec.replicas", 2.0},
		{"another kind", "- {manifest: {kind: Service}, set: [{path: /spec/replicas, value: 2}]}", "spec.replicas", 1.0},
		{"another name", "- {manifest: {name: api}, set: [{path: /spec/replicas, value: 2}]}", "spec.replicas", 1.0},
		{"this cluster", "- {clusters: {names: [oslo, berlin]}, set: [{path: /spec/replicas, value: 2}]}", "spec.replicas", 2.0},
		{"another cluster", "- {clusters: {names: [oslo]}, set: [{path: /spec/replicas, value: 2}]}", "spec.replicas", 1.0},
		{"clusters like this", "- {clusters: {matchLabels: {env: prod}}, set: [{path: /spec/replicas, value: 2}]}", "spec.replicas", 2.0},
		{"clusters unlike this", "- {clusters: {matchExpressions: [{key: env, operator: NotIn, values: [prod]}]}, set: [{path: /spec/replicas, value: 2}]}", "spec.replicas", 1.0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			overrides, errs := override.Parse(field.NewPath("o"), test.overrides)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			changed, err := apply(overrides, manifests(deployment), berlin)
			if err != nil {
				t.Fatal(err)
			}
			var object any
			if err := json.Unmarshal(changed[0].Raw, &object); err != nil {
				t.Fatal(err)
			}
			for _, step := range strings.Split(test.path, ".") {
				object = object.(map[string]any)[step]
			}
			if diff := cmp.Diff(test.want, object); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Gap W8: a value that a cluster does not have, or not of the type, is an error that says so.
func TestApplyFails(t *testing.T) {
	t.Parallel()
	for overrides, want := range map[string]string{
		"- set: [{path: /spec/replicas, label: none}]":                                                         "override 0: set /spec/replicas: cluster berlin has no label none: give it one, or a default",
		"- set: [{path: /spec/replicas, claim: none}]":                                                         "has no claim none",
		"- set: [{path: /spec/replicas, byCluster: {oslo: 1}}]":                                                "has no entry in byCluster",
		"- set: [{path: /spec/replicas, label: env, type: integer}]":                                           `the label env of cluster berlin is "prod": that is no integer`,
		"- set: [{path: /spec/replicas, label: env, type: number}]":                                            "no number",
		"- set: [{path: /spec/replicas, label: env, type: boolean}]":                                           "neither true nor false",
		"- set: [{path: /spec/replicas, label: env, type: json}]":                                              "no JSON",
		"- jsonPatch: [{op: remove, path: /spec/none}]":                                                        "override 0: jsonPatch",
		"- set: [{path: /spec/replicas, value: 1}]\n- jsonPatch: [{op: test, path: /spec/replicas, value: 2}]": "override 1",
	} {
		parsed, errs := override.Parse(field.NewPath("o"), overrides)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if _, err := apply(parsed, manifests(deployment), berlin); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", overrides, err, want)
		}
	}
}

// Gap W8: what can never work is refused with the field.
func TestParseFails(t *testing.T) {
	t.Parallel()
	for overrides, want := range map[string]string{
		"a: b":                         "no YAML list",
		"- sets: []":                   `unknown field`,
		"- manifest: {kind: A}":        "o[0]: Required value: write what to change",
		"- set: [{path: a, value: 1}]": "o[0].set[0].path: Invalid value: \"a\": write a JSON pointer",
		"- set: [{path: /a}]":          "exactly one of value",
		"- set: [{path: /a, value: 1, label: b}]":                                       "exactly one of value",
		"- set: [{path: /a, label: b, type: float}]":                                    "o[0].set[0].type: Unsupported value",
		"- set: [{path: /a, value: 1, type: integer}]":                                  "o[0].set[0].type: Forbidden",
		"- jsonPatch: {a: b}":                                                           "o[0].jsonPatch",
		"- {clusters: {matchExpressions: [{key: a, operator: X}]}, mergePatch: {a: b}}": "o[0].clusters",
	} {
		if _, errs := override.Parse(field.NewPath("o"), overrides); !strings.Contains(errs.ToAggregate().Error(), want) {
			t.Errorf("%s: got %v, want %q", overrides, errs, want)
		}
	}
}

// Overrides that double an object, or pad a list, are refused when they are written, and again when they are applied. A cluster's own
// overrides do not add up with those of other clusters.
func TestBounds(t *testing.T) {
	t.Parallel()
	copies := "[" + strings.TrimSuffix(strings.Repeat("{op: copy, from: /spec, path: /spec/template/spec/containers/-}, ", 21), ", ") + "]"
	large := strings.Repeat("a", 100_000)
	for name, test := range map[string]struct{ overrides, want string }{
		"copies": {"- jsonPatch: " + copies,
			"operation 13 (copy /spec/template/spec/containers/-): its copy operations copy too many bytes; the limit is 1048576 bytes"},
		"copies for a cluster": {"- {clusters: {names: [berlin]}, jsonPatch: " + copies + "}", "its copy operations copy too many bytes"},
		"behind a label":       {"- {set: [{path: /a, label: size}], jsonPatch: " + copies + "}", "its copy operations copy too many bytes"},
		"an index": {"- set: [{path: /spec/template/spec/containers/2000000000/name, value: a}]",
			"/spec/template/spec/containers/2000000000 is element 2000000000 of a list of 2; the limit is 2, the one after the last"},
		"an index in nothing":  {"- set: [{path: /spec/ports/1, label: size}]", "/spec/ports/1 is element 1 of a list of 0"},
		"the next element":     {"- set: [{path: /spec/template/spec/containers/2, value: {name: c}}, {path: /spec/ports/0, value: 1}]", ""},
		"a key like an index":  {"- set: [{path: /metadata/2000000000, value: a}]", ""},
		"a large value":        {"- mergePatch: {a: " + large + "}", ""},
		"one for each cluster": {strings.Repeat("- {clusters: {names: [berlin]}, mergePatch: {a: "+large[:10_000]+"}}\n", 150), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parsed, errs := override.Parse(field.NewPath("o"), test.overrides)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			tried := override.Try(parsed, manifests(deployment))
			_, applied := apply(parsed, manifests(deployment), berlin)
			for _, err := range []error{tried, applied} {
				if test.want == "" && err != nil || test.want != "" && (!budget.Is(err) || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("got %v, want %q", err, test.want)
				}
			}
		})
	}
}

// Many small manifests do not become one large work.
func TestBoundOfAllManifests(t *testing.T) {
	t.Parallel()
	parsed, errs := override.Parse(field.NewPath("o"), "- mergePatch: {a: "+strings.Repeat("a", 200_000)+"}")
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var many []workv1.Manifest
	for range 1000 {
		many = append(many, manifests(deployment)...)
	}
	_, err := apply(parsed, many, berlin)
	for _, err := range []error{override.Try(parsed, many), err} {
		if !budget.Is(err) || !strings.Contains(err.Error(), "with the overrides, the manifests have too many bytes; the limit is") {
			t.Errorf("got %v", err)
		}
	}
}

// What comes from outside never stops the hub.
func FuzzParseAndApply(f *testing.F) {
	f.Add("- set: [{path: /spec/replicas, label: size, type: integer}]", deployment)
	f.Add("- mergePatch: {spec: null}\n- jsonPatch: [{op: move, from: /spec, path: /a}]", deployment)
	f.Add("- set: [{path: /spec/template/spec/containers/-1, value: 1}]", deployment)
	f.Fuzz(func(_ *testing.T, overrides, manifest string) {
		parsed, errs := override.Parse(field.NewPath("o"), overrides)
		if len(errs) == 0 {
			_, _ = apply(parsed, manifests(manifest), berlin)
		}
	})
}

// apply renders the manifests for one cluster.
func apply(overrides []override.Override, manifests []workv1.Manifest, cluster override.Cluster) ([]workv1.Manifest, error) {
	r, err := override.NewRenderer(overrides, manifests)
	if err != nil {
		return nil, err
	}
	v, err := r.Variant(cluster)
	if err != nil {
		return nil, err
	}
	rendered, _, err := r.Render(v)
	return rendered, err
}

func manifests(raw string) []workv1.Manifest {
	return []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}}
}
