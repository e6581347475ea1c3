package inprocess_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// WH-12 WH-16: templates are held against the rules of a ManifestWork, and strategies against what a rollout can use.
func TestManifestWorkReplicaSetIsValidated(t *testing.T) {
	t.Parallel()
	set := func(manifests, strategy, more string) *unstructured.Unstructured {
		return object(t, `{apiVersion: work.open-cluster-management.io/v1alpha1, kind: ManifestWorkReplicaSet, metadata: {name: s, namespace: ns`+
			more+`},
			spec: {manifestWorkTemplate: {workload: {manifests: [`+manifests+`]}}, placementRefs: [{name: p}, {name: q, rolloutStrategy: `+strategy+
			`}]}}`)
	}
	const (
		configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: ns}}`
		quarter   = `{type: Progressive, progressive: {maxConcurrency: 25%}}`
		negative  = `{type: Progressive, progressive: {maxFailures: -1}}`
	)
	for _, test := range []struct {
		name        string
		object, old *unstructured.Unstructured
		text        string
	}{
		{name: "all right", object: set(configMap, quarter, "")},
		{name: "no manifest", object: set("", quarter, ""), text: "spec.manifestWorkTemplate.workload.manifests: Required value"},
		{name: "twice the same", object: set(configMap+","+configMap, quarter, ""), text: "spec.manifestWorkTemplate.workload.manifests[1]"},
		{name: "strategy", object: set(configMap, negative, ""),
			text: `spec.placementRefs[1].rolloutStrategy.progressive.maxFailures: Invalid value: "-1": a number of clusters is not negative`},
		{name: "overrides", object: set(configMap, quarter, `, annotations: {capstan.io/overrides: "- set: []"}`),
			text: "metadata.annotations[capstan.io/overrides][0]: Required value"},
		{name: "a new mistake in overrides", object: set(configMap, quarter, `, annotations: {capstan.io/overrides: "- set: []"}`),
			old:  set(configMap, quarter, ""),
			text: "metadata.annotations[capstan.io/overrides][0]: Required value"},
		{name: "an old mistake", object: set(configMap, negative, ", labels: {a: b}"), old: set(configMap, negative, "")},
		{name: "an old mistake in the template", object: set("", quarter, ""), old: set("", negative, "")},
		{name: "an old mistake in a strategy", object: set(configMap, negative, ""), old: set("", negative, "")},
		{name: "a new mistake in the template", object: set("", quarter, ""), old: set(configMap, quarter, ""), text: "workload.manifests"},
		{name: "a new mistake in a strategy", object: set(configMap, negative, ""), old: set(configMap, quarter, ""), text: "maxFailures"},
	} {
		t.Run(test.name, func(t *testing.T) { writeAndCheck(t, test.object, test.old, test.text) })
	}
}

// WH-11: the executor of a template is reviewed, too.
func TestExecutorOfReplicaSetIsValidated(t *testing.T) {
	t.Parallel()
	set := func() *unstructured.Unstructured {
		return object(t, `{apiVersion: work.open-cluster-management.io/v1alpha1, kind: ManifestWorkReplicaSet, metadata: {name: s, namespace: ns},
			spec: {placementRefs: [{name: p}], manifestWorkTemplate: {
				workload: {manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: ns}}]},
				executor: {subject: {type: ServiceAccount, serviceAccount: {namespace: apps, name: bot}}}}}}`)
	}
	checkStatus(t, newServer().write(t, set(), nil, ""), 400, "spec.manifestWorkTemplate.executor")
	checkStatus(t, newServer("execute-as ").write(t, set(), nil, ""), 0, "")
}

// AM-20, in both versions of the kind.
func TestRolloutStrategiesOfAddOnsAreValidated(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		addOn := func(strategy, more string) *unstructured.Unstructured {
			return object(t, `{apiVersion: addon.open-cluster-management.io/`+version+`, kind: ClusterManagementAddOn, metadata: {name: a`+more+`},
				spec: {installStrategy: {type: Placements, placements: [{name: p, namespace: ns, rolloutStrategy: `+strategy+`}]}}}`)
		}
		const late = `{type: All, all: {progressDeadline: 5d}}`
		const text = `spec.installStrategy.placements[0].rolloutStrategy.all.progressDeadline: Invalid value: "5d": write a time such as 10m or 2h`
		writeAndCheck(t, addOn(`{type: All}`, ""), nil, "")
		writeAndCheck(t, addOn(late, ""), nil, text)
		writeAndCheck(t, addOn(late, ""), addOn(`{type: All}`, ""), text)
		writeAndCheck(t, addOn(late, ", labels: {a: b}"), addOn(late, ""), "")
	}
}

// A4, A6, AM-05, WH-14: what else of a ClusterManagementAddOn is held against what the hub can use.
func TestClusterManagementAddOnIsValidated(t *testing.T) {
	t.Parallel()
	addOn := func(annotation, config string) *unstructured.Unstructured {
		return object(t, `{apiVersion: addon.open-cluster-management.io/v1beta1, kind: ClusterManagementAddOn, metadata: {name: a, annotations: {`+annotation+`}},
			spec: {installStrategy: {type: Placements, placements: [{name: p, namespace: ns, configs: [{resource: configmaps, namespace: ns, name: `+
			config+`}]}]}}}`)
	}
	const none = "__reserved_no_default__"
	for _, test := range []struct {
		name        string
		object, old *unstructured.Unstructured
		text        string
	}{
		{name: "all right", object: addOn(`capstan.io/depends-on: "b, c", capstan.io/pre-delete-timeout: 0s`, "x")},
		{name: "itself", object: addOn(`capstan.io/depends-on: "b,a"`, "x"),
			text: "metadata.annotations[capstan.io/depends-on]: Invalid value: \"b,a\": an add-on cannot wait for itself"},
		{name: "itself, from now on", object: addOn(`capstan.io/depends-on: "a"`, "x"), old: addOn("", "x"), text: "cannot wait for itself"},
		{name: "itself, as ever", object: addOn(`capstan.io/depends-on: "a", b: c`, "x"), old: addOn(`capstan.io/depends-on: "a"`, "x")},
		{name: "no name", object: addOn(`capstan.io/depends-on: "b c"`, "x"), text: "names of ClusterManagementAddOns with commas between"},
		{name: "no duration", object: addOn("capstan.io/pre-delete-timeout: soon", "x"),
			text: `metadata.annotations[capstan.io/pre-delete-timeout]: Invalid value: "soon": write how long`},
		{name: "negative", object: addOn("capstan.io/pre-delete-timeout: -1m", "x"), text: `Invalid value: "-1m"`},
		{name: "no default", object: addOn("", none), text: "spec.installStrategy.placements[0].configs[0].name: Invalid value"},
		{name: "no default, as ever", object: addOn("b: c", none), old: addOn("", none)},
	} {
		t.Run(test.name, func(t *testing.T) { writeAndCheck(t, test.object, test.old, test.text) })
	}
}

// writeAndCheck expects 400 and the text, or no error without one.
func writeAndCheck(t *testing.T, object, old *unstructured.Unstructured, text string, verbs ...string) {
	t.Helper()
	code := int32(400)
	if text == "" {
		code = 0
	}
	checkStatus(t, newServer(verbs...).write(t, object, old, ""), code, text)
}
