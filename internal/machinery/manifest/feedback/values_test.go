package feedback

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := o.UnmarshalJSON(content); err != nil {
		t.Fatal(err)
	}
	return o
}

// written is values as name=Type:value.
func written(values []workv1.FeedbackValue) string {
	var all []string
	for _, v := range values {
		var value any
		switch v.Value.Type {
		case workv1.Integer:
			value = *v.Value.Integer
		case workv1.String:
			value = *v.Value.String
		case workv1.Boolean:
			value = *v.Value.Boolean
		case workv1.JSONRaw:
			value = *v.Value.JSONRaw
		}
		all = append(all, fmt.Sprintf("%s=%s:%v", v.Name, v.Value.Type, value))
	}
	return strings.Join(all, " ")
}

func paths(named ...string) workv1.FeedbackRule {
	rule := workv1.FeedbackRule{Type: workv1.JSONPathsType}
	for _, p := range named {
		name, path, _ := strings.Cut(p, "=")
		rule.JSONPaths = append(rule.JSONPaths, workv1.JSONPath{Name: name, Path: path})
	}
	return rule
}

const thing = `{apiVersion: example.com/v1, kind: Thing, metadata: {name: a, labels: {tier: gold}}, spec: {size: 3, ratio: 0.75, big: 1e30, live: true, none: null, html: ["<a&b>"]},
	status: {items: [{id: 1}, {id: 2}], zero: 0, empty: "", paused: false, conditions: [{type: Ready, status: "True"}, {type: Done, status: "False"}]}}`

// WK-25, gap W7: the values of JSON paths and their types.
func TestJSONPaths(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ path, want, failure string }{
		"integer":           {path: ".spec.size", want: "v=Integer:3"},
		"zero":              {path: ".status.zero", want: "v=Integer:0"},
		"string":            {path: ".metadata.name", want: "v=String:a"},
		"empty string":      {path: ".status.empty", want: "v=String:"},
		"boolean":           {path: ".spec.live", want: "v=Boolean:true"},
		"false":             {path: ".status.paused", want: "v=Boolean:false"},
		"whole object":      {path: ".metadata.labels.tier", want: "v=String:gold"},
		"float":             {path: ".spec.ratio", want: "v=JsonRaw:0.75"},
		"large number":      {path: ".spec.big", want: "v=JsonRaw:1e+30"},
		"filter":            {path: `.status.conditions[?(@.type=="Ready")].status`, want: "v=String:True"},
		"index":             {path: ".status.items[1].id", want: "v=Integer:2"},
		"several":           {path: ".status.items[*].id", want: "v=JsonRaw:[1,2]"},
		"object":            {path: ".status.items[0]", want: `v=JsonRaw:{"id":1}`},
		"list":              {path: ".spec.html", want: `v=JsonRaw:["<a&b>"]`},
		"missing":           {path: ".status.nothing.here"},
		"null":              {path: ".spec.none"},
		"no such condition": {path: `.status.conditions[?(@.type=="Gone")].status`},
		"out of range":      {path: ".status.items[7].id", failure: `the path "v" cannot be read: ".status.items[7].id"`},
		"syntax":            {path: ".status.[", failure: `".status.[" is no JSON path, such as .status.readyReplicas`},
		"no path": {path: "status.zero",
			failure: `"status.zero": unrecognized identifier status; a path begins with a dot, such as .status.readyReplicas`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values, err := Values(object(t, thing), []workv1.FeedbackRule{paths("v=" + test.path)}, MaxJSONRaw)
			if got := written(values); got != test.want {
				t.Errorf("values %q, want %q", got, test.want)
			}
			if test.failure == "" && err != nil || test.failure != "" && (err == nil || !strings.Contains(err.Error(), test.failure)) {
				t.Errorf("error %v, want %q", err, test.failure)
			}
		})
	}
}

// WK-25: without the feature gate RawFeedbackJsonString, values are integers, strings and booleans.
func TestNoRawJSON(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		".spec.size": "v=Integer:3", ".metadata.name": "v=String:a", ".spec.live": "v=Boolean:true",
		".spec.ratio": "", ".status.items[0]": "", ".spec.html": "", ".status.items[*].id": "",
	} {
		values, err := Values(object(t, thing), []workv1.FeedbackRule{paths("v=" + path)}, 0)
		if got := written(values); got != want {
			t.Errorf("%s: values %q, want %q", path, got, want)
		}
		if want == "" && (err == nil || !strings.Contains(err.Error(), "RawFeedbackJsonString")) || want != "" && err != nil {
			t.Errorf("%s: error %v", path, err)
		}
	}
}

// WK-25: what fails does not take the rest along, and says which one it is.
func TestFailures(t *testing.T) {
	t.Parallel()
	o := object(t, thing)
	wrongVersion := paths("old=.spec.size", "size=.spec.size")
	wrongVersion.JSONPaths[0].Version, wrongVersion.JSONPaths[1].Version = "v1beta1", "v1"
	values, err := Values(o, []workv1.FeedbackRule{
		{Type: workv1.WellKnownStatusType}, paths("bad=.[", "name=.metadata.name"), paths("name=.spec.size"), wrongVersion,
	}, MaxJSONRaw)
	if got := written(values); got != "name=String:a size=Integer:3" {
		t.Errorf("values %q", got)
	}
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"no well-known status of example.com/v1 Thing", `the path "bad"`, `the name "name" is given to several`,
		`the path "old" is for version v1beta1, but the manifest is of version v1`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}

// WK-19, WK-25: the limit of raw JSON, exactly, and that of texts.
func TestLimits(t *testing.T) {
	t.Parallel()
	list := func(bytes int) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "A",
			"list": []any{strings.Repeat("a", bytes-len(`[""]`))}}}
	}
	rule := []workv1.FeedbackRule{paths("list=.list")}
	if values, err := Values(list(1024), rule, MaxJSONRaw); err != nil || len(values) != 1 || len(*values[0].Value.JSONRaw) != 1024 {
		t.Errorf("1024 bytes: %d values, %v", len(values), err)
	}
	if values, err := Values(list(1025), rule, MaxJSONRaw); err == nil || len(values) != 0 ||
		!strings.Contains(err.Error(), "it has 1025 bytes of JSON, and 1024 is the limit") {
		t.Errorf("1025 bytes: %d values, %v", len(values), err)
	}
	if values, err := Values(list(101), rule, 100); err == nil || len(values) != 0 {
		t.Errorf("a lower limit: %d values, %v", len(values), err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "A", "list": strings.Repeat("a", maxString+1)}}
	if values, err := Values(o, rule, MaxJSONRaw); err == nil || len(values) != 0 {
		t.Errorf("a long text: %d values, %v", len(values), err)
	}
}

// WK-26, gap W5: what is known of each kind.
func TestWellKnownStatus(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		`{apiVersion: apps/v1, kind: Deployment, status: {readyReplicas: 1, replicas: 3, availableReplicas: 2}}`:                                                                    "ReadyReplicas=Integer:1 Replicas=Integer:3 AvailableReplicas=Integer:2",
		`{apiVersion: apps/v1, kind: DaemonSet, status: {numberReady: 1, desiredNumberScheduled: 3, numberAvailable: 2}}`:                                                           "NumberReady=Integer:1 DesiredNumberScheduled=Integer:3 NumberAvailable=Integer:2",
		`{apiVersion: batch/v1, kind: Job, status: {succeeded: 1, conditions: [{type: Complete, status: "True"}]}}`:                                                                 "JobComplete=String:True JobSucceeded=Integer:1",
		`{apiVersion: v1, kind: Pod, status: {phase: Running, conditions: [{type: Ready, status: "False"}]}}`:                                                                       "PodReady=String:False PodPhase=String:Running",
		`{apiVersion: apps/v1, kind: StatefulSet, status: {readyReplicas: 1, replicas: 3, availableReplicas: 2, updatedReplicas: 0}}`:                                               "ReadyReplicas=Integer:1 Replicas=Integer:3 AvailableReplicas=Integer:2 UpdatedReplicas=Integer:0",
		`{apiVersion: apps/v1, kind: ReplicaSet, status: {replicas: 3}}`:                                                                                                            "Replicas=Integer:3",
		`{apiVersion: batch/v1, kind: CronJob, spec: {suspend: true}, status: {lastScheduleTime: "2026-01-01T00:00:00Z"}}`:                                                          "LastScheduleTime=String:2026-01-01T00:00:00Z Suspended=Boolean:true",
		`{apiVersion: v1, kind: Service, spec: {clusterIP: 10.0.0.1}, status: {loadBalancer: {ingress: [{ip: 1.2.3.4}]}}}`:                                                          "ClusterIP=String:10.0.0.1 LoadBalancerIP=String:1.2.3.4",
		`{apiVersion: v1, kind: Service, spec: {clusterIP: 10.0.0.1}, status: {loadBalancer: {}}}`:                                                                                  "ClusterIP=String:10.0.0.1",
		`{apiVersion: networking.k8s.io/v1, kind: Ingress, status: {loadBalancer: {ingress: [{hostname: a.example}]}}}`:                                                             "LoadBalancerHostname=String:a.example",
		`{apiVersion: v1, kind: PersistentVolumeClaim, spec: {volumeName: pv}, status: {phase: Bound, capacity: {storage: 1Gi}}}`:                                                   "Phase=String:Bound Capacity=String:1Gi VolumeName=String:pv",
		`{apiVersion: v1, kind: Namespace, status: {phase: Active}}`:                                                                                                                "Phase=String:Active",
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, status: {conditions: [{type: Established, status: "True"}, {type: NamesAccepted, status: "True"}]}}`: "Established=String:True NamesAccepted=String:True",
		`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, status: {conditions: [{type: Available, status: "True"}]}}`:                                                      "Available=String:True",
		`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, status: {currentReplicas: 1, desiredReplicas: 2, conditions: [{type: ScalingActive, status: "True"}]}}`:        "CurrentReplicas=Integer:1 DesiredReplicas=Integer:2 ScalingActive=String:True",
		`{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, status: {currentReplicas: 1, desiredReplicas: 2}}`:                                                             "CurrentReplicas=Integer:1 DesiredReplicas=Integer:2",
		`{apiVersion: policy/v1, kind: PodDisruptionBudget, status: {currentHealthy: 1, desiredHealthy: 2, disruptionsAllowed: 0, expectedPods: 3}}`:                                "CurrentHealthy=Integer:1 DesiredHealthy=Integer:2 DisruptionsAllowed=Integer:0 ExpectedPods=Integer:3",
	} {
		o := object(t, content)
		values, err := Values(o, []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}}, MaxJSONRaw)
		if got := written(values); err != nil || got != want {
			t.Errorf("%s: %q, want %q (%v)", o.GetKind(), got, want, err)
		}
		// A new object has no status yet, and that is no error.
		delete(o.Object, "status")
		if _, err := Values(o, []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}}, MaxJSONRaw); err != nil {
			t.Errorf("%s without status: %v", o.GetKind(), err)
		}
	}
}

// Whatever a path says, what is reported can be stored.
func FuzzPaths(f *testing.F) {
	for _, seed := range []string{".spec.size", ".status.items[*].id", `.status.conditions[?(@.type=="Ready")].status`, "}{", ".[", "..",
		"[-1:]", ".spec.html[0:9:-1]", "range .a", "'", `.status.items[?(@.n>1)]`} {
		f.Add(seed)
	}
	o := object(f, thing)
	f.Fuzz(func(t *testing.T, path string) {
		values, err := Values(o, []workv1.FeedbackRule{paths("v=" + path)}, MaxJSONRaw)
		if err != nil && err.Error() == "" {
			t.Error("an error without a text")
		}
		for _, v := range values {
			if raw := v.Value.JSONRaw; raw != nil && (len(*raw) > MaxJSONRaw || !json.Valid([]byte(*raw)) || !utf8.ValidString(*raw)) {
				t.Errorf("JSON of %d bytes: %s", len(*raw), *raw)
			}
		}
	})
}
