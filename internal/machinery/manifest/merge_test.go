package manifest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// mergeCase is one merge. The texts are YAML; apiVersion, kind and name are added.
type mergeCase struct {
	name        string
	kind        string // group/version Kind, such as "v1 ConfigMap"
	required    string
	live        string
	lastApplied string
	want        string // what is merged; empty means that nothing changes
}

func runMergeCases(t *testing.T, cases []mergeCase) {
	t.Helper()
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			required, live := object(t, test.kind, test.required), object(t, test.kind, test.live)
			var last *unstructured.Unstructured
			if test.lastApplied != "" {
				last = object(t, test.kind, test.lastApplied)
			}
			merged, changed := manifest.Merge(required, live, last)
			want := live
			if test.want != "" {
				want = object(t, test.kind, test.want)
			}
			if changed != (test.want != "") {
				t.Errorf("changed is %t", changed)
			}
			if diff := cmp.Diff(want.Object, merged.Object); diff != "" {
				t.Errorf("merged (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(object(t, test.kind, test.required).Object, required.Object); diff != "" {
				t.Errorf("the manifest was modified:\n%s", diff)
			}
			if diff := cmp.Diff(object(t, test.kind, test.live).Object, live.Object); diff != "" {
				t.Errorf("the live object was modified:\n%s", diff)
			}
			if again, changed := manifest.Merge(required, merged, last); changed {
				t.Errorf("a second merge changes it again:\n%s", cmp.Diff(merged.Object, again.Object))
			}
		})
	}
}

func object(t *testing.T, kind, text string) *unstructured.Unstructured {
	t.Helper()
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if text != "" {
		if err := json.Unmarshal(encoded, &object.Object); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
	apiVersion, name, _ := strings.Cut(kind, " ")
	object.SetAPIVersion(apiVersion)
	object.SetKind(name)
	object.SetName("one")
	return object
}

// WK-05: what the manifest names is made equal, what it does not name is left alone.
func TestMergeFields(t *testing.T) {
	t.Parallel()
	const kind = "example.com/v1 Widget"
	runMergeCases(t, []mergeCase{
		{name: "equal", kind: kind, required: `spec: {a: 1, b: x, c: true}`, live: `spec: {a: 1, b: x, c: true}`},
		{name: "scalar differs", kind: kind, required: `spec: {a: 1}`, live: `spec: {a: 2, b: x}`, want: `spec: {a: 1, b: x}`},
		{name: "field is missing", kind: kind, required: `spec: {a: 1}`, live: `spec: {b: 1}`, want: `spec: {a: 1, b: 1}`},
		{name: "defaults and foreign fields stay", kind: kind, required: `spec: {a: 1}`, live: `{spec: {a: 1, d: {e: 1}}, other: 5}`},
		{name: "nested", kind: kind, required: `spec: {a: {b: {c: 1}}}`, live: `spec: {a: {b: {c: 2, d: 3}}}`,
			want: `spec: {a: {b: {c: 1, d: 3}}}`},
		{name: "top level content other than spec", kind: kind, required: `rules: 1`, live: `rules: 2`, want: `rules: 1`},
		{name: "type differs", kind: kind, required: `spec: {a: {b: 1}}`, live: `spec: {a: x}`, want: `spec: {a: {b: 1}}`},
		{name: "list for object", kind: kind, required: `spec: {a: [1]}`, live: `spec: {a: {b: 1}}`, want: `spec: {a: [1]}`},
		{name: "int and float", kind: kind, required: `spec: {a: 1.0, b: 2}`, live: `spec: {a: 1, b: 2.0}`},
		{name: "number and text differ", kind: kind, required: `spec: {a: "1"}`, live: `spec: {a: 1}`, want: `spec: {a: "1"}`},
		{name: "null is not naming", kind: kind, required: `spec: {a: null}`, live: `spec: {a: 1}`},
		{name: "null and absent", kind: kind, required: `spec: {a: null}`, live: `spec: {b: 1}`},
		{name: "live null", kind: kind, required: `spec: {a: 1}`, live: `spec: {a: null}`, want: `spec: {a: 1}`},
		{name: "custom resources store empty objects", kind: kind, required: `spec: {selfSigned: {}}`, live: `spec: {ca: {}}`,
			want: `spec: {selfSigned: {}, ca: {}}`},
		{name: "quantities are texts elsewhere", kind: kind, required: `spec: {a: 1000m}`, live: `spec: {a: "1"}`, want: `spec: {a: 1000m}`},
		{name: "quantities in resources", kind: kind, required: `spec: {resources: {limits: {cpu: 1000m, memory: 1Gi}, requests: {cpu: 1}}}`,
			live: `spec: {resources: {limits: {cpu: "1", memory: 1024Mi}, requests: {cpu: "1"}}}`},
		{name: "quantities differ", kind: kind, required: `spec: {resources: {limits: {cpu: 1500m}}}`,
			live: `spec: {resources: {limits: {cpu: "1"}}}`, want: `spec: {resources: {limits: {cpu: 1500m}}}`},
		{name: "status is not touched", kind: kind, required: `{spec: {a: 1}, status: {x: 1}}`, live: `{spec: {a: 1}, status: {x: 2}}`},
		{name: "status is not added", kind: kind, required: `{spec: {a: 1}, status: {x: 1}}`, live: `{spec: {a: 2}}`, want: `spec: {a: 1}`},
	})
}

func TestMergeThreeWay(t *testing.T) {
	t.Parallel()
	const kind = "example.com/v1 Widget"
	runMergeCases(t, []mergeCase{
		{name: "field no longer named", kind: kind, required: `spec: {a: 1}`, lastApplied: `spec: {a: 1, b: 2}`,
			live: `spec: {a: 1, b: 2, c: 3}`, want: `spec: {a: 1, c: 3}`},
		{name: "named null now", kind: kind, required: `spec: {a: 1, b: null}`, lastApplied: `spec: {b: 2}`,
			live: `spec: {a: 1, b: 2}`, want: `spec: {a: 1}`},
		{name: "object no longer named", kind: kind, required: `spec: {a: 1}`, lastApplied: `spec: {b: {}}`,
			live: `spec: {a: 1, b: {x: 1}}`, want: `spec: {a: 1}`},
		{name: "top level no longer named", kind: kind, required: `spec: {a: 1}`, lastApplied: `{spec: {a: 1}, extra: {b: 1}}`,
			live: `{spec: {a: 1}, extra: {b: 1}}`, want: `spec: {a: 1}`},
		{name: "already gone", kind: kind, required: `spec: {a: 1}`, lastApplied: `spec: {b: 2}`, live: `spec: {a: 1}`},
		{name: "was null before", kind: kind, required: `spec: {a: 1}`, lastApplied: `spec: {b: null}`, live: `spec: {a: 1, b: 2}`},
		{name: "inside a list", kind: kind, required: `spec: {l: [{a: 1}]}`, lastApplied: `spec: {l: [{a: 1, b: 2}]}`,
			live: `spec: {l: [{a: 1, b: 2, c: 3}]}`, want: `spec: {l: [{a: 1}]}`},
		{name: "inside a keyed list", kind: "apps/v1 Deployment", required: `spec: {containers: [{name: x, a: 1}]}`,
			lastApplied: `spec: {containers: [{name: y}, {name: x, a: 1, b: 2}]}`,
			live:        `spec: {containers: [{name: x, a: 1, b: 2, c: 3}]}`, want: `spec: {containers: [{name: x, a: 1, c: 3}]}`},
		{name: "without the last manifest it stays", kind: kind, required: `spec: {a: 1}`, live: `spec: {a: 1, b: 2}`},
		{name: "status of the last manifest", kind: kind, required: `spec: {a: 1}`, lastApplied: `{status: {x: 1}}`,
			live: `{spec: {a: 1}, status: {x: 1}}`},
		{name: "labels of a template go one by one", kind: kind, required: `spec: {template: {spec: {}}}`,
			lastApplied: `spec: {template: {metadata: {labels: {a: b}}, spec: {}}}`,
			live:        `spec: {template: {metadata: {labels: {a: b, c: d}}, spec: {}}}`,
			want:        `spec: {template: {metadata: {labels: {c: d}}, spec: {}}}`},
		{name: "what is not stored was not named", kind: "batch/v1 Job", required: `spec: {template: {}}`,
			lastApplied: `spec: {template: {spec: {securityContext: {}, nodeName: ""}, metadata: {creationTimestamp: null}}}`,
			live:        `spec: {template: {spec: {securityContext: {a: b}, nodeName: n}, metadata: {labels: {uid: x}}}}`},
		{name: "empty object of a custom resource", kind: kind, required: `spec: {ca: {}}`, lastApplied: `spec: {selfSigned: {}}`,
			live: `spec: {selfSigned: {}}`, want: `spec: {ca: {}}`},
	})
}

func TestMergeLists(t *testing.T) {
	t.Parallel()
	const kind = "example.com/v1 Widget"
	runMergeCases(t, []mergeCase{
		{name: "equal scalars", kind: kind, required: `spec: {l: [a, b]}`, live: `spec: {l: [a, b]}`},
		{name: "other order", kind: kind, required: `spec: {l: [a, b]}`, live: `spec: {l: [b, a]}`, want: `spec: {l: [a, b]}`},
		{name: "longer", kind: kind, required: `spec: {l: [a]}`, live: `spec: {l: [a, b]}`, want: `spec: {l: [a]}`},
		{name: "empty", kind: kind, required: `spec: {l: []}`, live: `spec: {l: [a]}`, want: `spec: {l: []}`},
		{name: "objects with defaults", kind: kind, required: `spec: {l: [{a: 1}, {a: 2}]}`, live: `spec: {l: [{a: 1, d: 0}, {a: 2, d: 0}]}`},
		{name: "one object differs", kind: kind, required: `spec: {l: [{a: 1}, {a: 2}]}`, live: `spec: {l: [{a: 1, d: 0}, {a: 3, d: 0}]}`,
			want: `spec: {l: [{a: 1}, {a: 2}]}`},
		{name: "lists in lists", kind: kind, required: `spec: {l: [[1], [2]]}`, live: `spec: {l: [[1], [3]]}`, want: `spec: {l: [[1], [2]]}`},
		{name: "null elements", kind: kind, required: `spec: {l: [null, 1]}`, live: `spec: {l: [null, 1]}`},
		{name: "keyed list with defaults", kind: "apps/v1 Deployment", required: `spec: {containers: [{name: a, image: x}, {name: b}]}`,
			live: `spec: {containers: [{name: a, image: x, d: 1}, {name: b, d: 1}]}`},
		{name: "keyed element changes", kind: "apps/v1 Deployment", required: `spec: {containers: [{name: a, image: y}]}`,
			live: `spec: {containers: [{name: a, image: x, d: 1}]}`, want: `spec: {containers: [{name: a, image: y, d: 1}]}`},
		{name: "keyed element of another writer goes", kind: "apps/v1 Deployment", required: `spec: {containers: [{name: b}]}`,
			live: `spec: {containers: [{name: a, d: 1}, {name: b, d: 2}]}`, want: `spec: {containers: [{name: b, d: 2}]}`},
		{name: "keyed element is new", kind: "apps/v1 Deployment", required: `spec: {volumes: [{name: a}, {name: b}]}`,
			live: `spec: {volumes: [{name: b, d: 2}]}`, want: `spec: {volumes: [{name: a}, {name: b, d: 2}]}`},
		{name: "order of the manifest", kind: "apps/v1 Deployment", required: `spec: {env: [{name: a}, {name: b}]}`,
			live: `spec: {env: [{name: b, d: 2}, {name: a, d: 1}]}`, want: `spec: {env: [{name: a, d: 1}, {name: b, d: 2}]}`},
		{name: "same name twice is a plain list", kind: "apps/v1 Deployment",
			required: `spec: {env: [{name: a, value: "1"}, {name: a, value: "2"}]}`,
			live:     `spec: {env: [{name: a, value: "2"}, {name: a, value: "2"}]}`,
			want:     `spec: {env: [{name: a, value: "1"}, {name: a, value: "2"}]}`},
		{name: "list of texts where names are usual", kind: "apps/v1 Deployment", required: `spec: {ports: [80]}`,
			live: `spec: {ports: [80, 81]}`, want: `spec: {ports: [80]}`},
		{name: "ports of a custom resource have no keys that are known", kind: kind,
			required: `spec: {ports: [{name: a, port: 1}, {name: b, port: 2}]}`,
			live:     `spec: {ports: [{name: b, port: 2, d: 1}, {name: a, port: 1, d: 2}]}`,
			want:     `spec: {ports: [{name: a, port: 1}, {name: b, port: 2}]}`},
		{name: "emptied keyed list", kind: "apps/v1 Deployment", required: `spec: {containers: []}`, live: `spec: {containers: [{name: a}]}`,
			want: `spec: {containers: []}`},
	})
}

// WK-05, WK-12
func TestMergeMetadata(t *testing.T) {
	t.Parallel()
	const kind = "example.com/v1 Widget"
	owner := func(uid, more string) string {
		return `{apiVersion: v1, kind: Owner, name: o, uid: "` + uid + `"` + more + `}`
	}
	runMergeCases(t, []mergeCase{
		{name: "labels and annotations are added", kind: kind, required: `metadata: {labels: {a: "1"}, annotations: {b: "2"}}`,
			live: `metadata: {labels: {x: "9"}}`, want: `metadata: {labels: {a: "1", x: "9"}, annotations: {b: "2"}}`},
		{name: "and changed", kind: kind, required: `metadata: {labels: {a: "1"}, annotations: {b: "2"}}`,
			live: `metadata: {labels: {a: "0"}, annotations: {b: "0"}}`, want: `metadata: {labels: {a: "1"}, annotations: {b: "2"}}`},
		{name: "never removed", kind: kind, required: `metadata: {labels: {}}`, live: `metadata: {labels: {a: "1"}, annotations: {b: "2"}}`},
		{name: "removed by suffix", kind: kind, required: `metadata: {labels: {a-: ""}, annotations: {b-: ""}}`,
			live: `metadata: {labels: {a: "1", c: "3"}, annotations: {b: "2", d: "4"}}`,
			want: `metadata: {labels: {c: "3"}, annotations: {d: "4"}}`},
		{name: "removal of what is not there", kind: kind, required: `metadata: {labels: {a-: ""}}`, live: `metadata: {labels: {c: "3"}}`},
		{name: "removal wins", kind: kind, required: `metadata: {labels: {a-: "", a: "1"}}`, live: `metadata: {labels: {a: "1", b: "2"}}`,
			want: `metadata: {labels: {b: "2"}}`},
		{name: "owner is added", kind: kind, required: `metadata: {ownerReferences: [` + owner("u1", "") + `]}`,
			live: `metadata: {ownerReferences: [` + owner("u2", "") + `]}`,
			want: `metadata: {ownerReferences: [` + owner("u2", "") + `,` + owner("u1", "") + `]}`},
		{name: "owner is there", kind: kind, required: `metadata: {ownerReferences: [` + owner("u1", "") + `]}`,
			live: `metadata: {ownerReferences: [` + owner("u2", "") + `,` + owner("u1", ", controller: true") + `]}`},
		{name: "owner changes", kind: kind, required: `metadata: {ownerReferences: [{apiVersion: v1, kind: Owner, name: p, uid: u1}]}`,
			live: `metadata: {ownerReferences: [` + owner("u1", ", blockOwnerDeletion: true") + `]}`,
			want: `metadata: {ownerReferences: [{apiVersion: v1, kind: Owner, name: p, uid: u1, blockOwnerDeletion: true}]}`},
		{name: "owner is removed by suffix", kind: kind, required: `metadata: {ownerReferences: [` + owner("u1-", "") + `]}`,
			live: `metadata: {ownerReferences: [` + owner("u2", "") + `,` + owner("u1", "") + `]}`,
			want: `metadata: {ownerReferences: [` + owner("u2", "") + `]}`},
		{name: "removal of an owner that is not there", kind: kind, required: `metadata: {ownerReferences: [` + owner("u1-", "") + `]}`,
			live: ``},
		{name: "finalizers of the live object", kind: kind, required: `metadata: {finalizers: [a]}`, live: `metadata: {finalizers: [b]}`},
		{name: "other metadata", kind: kind, required: `metadata: {uid: x, generation: 7}`,
			live: `metadata: {uid: y, resourceVersion: "5", generation: 1, creationTimestamp: "2026-01-01T00:00:00Z"}`},
	})
}

// WK-05: keys of metadata that the last manifest named and this one does not go, and no others.
func TestMergeKeys(t *testing.T) {
	t.Parallel()
	const kind = "example.com/v1 Widget"
	owners := func(uids ...string) string {
		var list []string
		for _, uid := range uids {
			list = append(list, `{apiVersion: v1, kind: Owner, name: o, uid: `+uid+`}`)
		}
		return `ownerReferences: [` + strings.Join(list, ", ") + `]`
	}
	const named = `metadata: {labels: {a: "1"}, annotations: {b: "2"}, finalizers: [f], `
	runMergeCases(t, []mergeCase{
		{name: "all of them, with their fields", kind: kind, required: `spec: {}`, lastApplied: named + owners("u1") + `}`,
			live: `{` + named + owners("u1") + `}, spec: {}}`, want: `spec: {}`},
		{name: "those of others stay", kind: kind, required: `metadata: {}`, lastApplied: named + owners("u1") + `}`,
			live: `metadata: {labels: {a: "1", x: "1"}, annotations: {b: "2", y: "2"}, finalizers: [e, f, g], ` + owners("u0", "u1", "u2") + `}`,
			want: `metadata: {labels: {x: "1"}, annotations: {y: "2"}, finalizers: [e, g], ` + owners("u0", "u2") + `}`},
		{name: "whatever others have made of the value", kind: kind, required: `metadata: {}`, lastApplied: `metadata: {labels: {a: "1"}}`,
			live: `metadata: {labels: {a: "2", x: "1"}}`, want: `metadata: {labels: {x: "1"}}`},
		{name: "one of several", kind: kind, required: `metadata: {labels: {a: "1"}, finalizers: [f]}`,
			lastApplied: `metadata: {labels: {a: "0", b: "2"}, finalizers: [f, g]}`,
			live:        `metadata: {labels: {a: "0", b: "2"}, finalizers: [f, g]}`, want: `metadata: {labels: {a: "1"}, finalizers: [f]}`},
		{name: "a field is exchanged for another", kind: kind, required: `metadata: {annotations: {a: "1"}}`,
			lastApplied: `metadata: {labels: {a: "1"}}`, live: `metadata: {labels: {a: "1"}}`, want: `metadata: {annotations: {a: "1"}}`},
		{name: "an empty value", kind: kind, required: `metadata: {}`, lastApplied: `metadata: {labels: {a: ""}, annotations: {b: ""}}`,
			live: `metadata: {labels: {a: ""}, annotations: {b: ""}}`, want: `metadata: {}`},
		{name: "they are gone already", kind: kind, required: `metadata: {}`, lastApplied: named + owners("u1") + `}`,
			live: `metadata: {labels: {x: "1"}}`},
		{name: "still named", kind: kind, required: named + owners("u1") + `}`, lastApplied: named + owners("u1") + `}`,
			live: named + owners("u1") + `}`},
		{name: "a finalizer that is named is not put back", kind: kind, required: `metadata: {finalizers: [f, g]}`,
			lastApplied: `metadata: {finalizers: [f, g]}`, live: `metadata: {finalizers: [f]}`},
		{name: "the removal of others' was asked for, and is not any more", kind: kind, required: `metadata: {}`,
			lastApplied: `metadata: {labels: {a-: ""}, annotations: {b-: "", b: "1"}, ` + owners("u1-") + `}`,
			live:        `metadata: {labels: {a: "1", "a-": ""}, annotations: {b: "2"}, ` + owners("u1") + `}`},
		{name: "removal is asked for instead", kind: kind, required: `metadata: {labels: {a-: ""}, ` + owners("u1-") + `}`,
			lastApplied: `metadata: {labels: {a: "1"}, ` + owners("u1") + `}`, live: `metadata: {labels: {a: "1", x: "1"}, ` + owners("u1") + `}`,
			want: `metadata: {labels: {x: "1"}}`},
		{name: "what the agent writes", kind: kind, required: `metadata: {}`,
			lastApplied: `metadata: {annotations: {applied-fields.capstan.io/1: "{}", open-cluster-management.io/config-spec-hash: x}}`,
			live:        `metadata: {annotations: {applied-fields.capstan.io/1: "{}", open-cluster-management.io/config-spec-hash: x}}`},
		{name: "without the last manifest they stay", kind: kind, required: `metadata: {}`, live: named + owners("u1") + `}`},
	})
}

func TestForCreateLeavesRemovalsOut(t *testing.T) {
	t.Parallel()
	const kind = "v1 ConfigMap"
	required := object(t, kind, `
metadata:
  labels: {a: "1", b-: ""}
  annotations: {c-: ""}
  finalizers: [f]
  ownerReferences: [{apiVersion: v1, kind: O, name: o, uid: u1-}, {apiVersion: v1, kind: O, name: p, uid: u2}]
data: {x: y}`)
	want := object(t, kind, `
metadata:
  labels: {a: "1"}
  finalizers: [f]
  ownerReferences: [{apiVersion: v1, kind: O, name: p, uid: u2}]
data: {x: y}`)
	before := required.DeepCopy()
	if diff := cmp.Diff(want.Object, manifest.ForCreate(required).Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before.Object, required.Object); diff != "" {
		t.Errorf("the manifest was modified:\n%s", diff)
	}
}
