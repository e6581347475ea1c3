package admission_test

import (
	"strings"
	"testing"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/admission"
)

// WK-28: what an agent compiles and interprets is bounded when it is written: in number and length, for each manifest. What is there
// already may stay.
func TestManifestConfigs(t *testing.T) {
	t.Parallel()
	many, long := strings.Split(strings.Repeat("a,", 250)+"a", ","), strings.Repeat("a", 10_000)
	feedback := func(paths ...string) (config workv1.ManifestConfigOption) {
		rule := workv1.FeedbackRule{Type: workv1.JSONPathsType}
		for _, path := range paths {
			rule.JSONPaths = append(rule.JSONPaths, workv1.JSONPath{Name: "a", Path: path})
		}
		config.FeedbackRules = []workv1.FeedbackRule{rule}
		return config
	}
	rules := func(rules ...workv1.ConditionRule) workv1.ManifestConfigOption {
		return workv1.ManifestConfigOption{ConditionRules: rules}
	}
	ignoring := func(fields ...workv1.IgnoreField) workv1.ManifestConfigOption {
		return workv1.ManifestConfigOption{
			UpdateStrategy: &workv1.UpdateStrategy{ServerSideApply: &workv1.ServerSideApplyConfig{IgnoreFields: fields}}}
	}
	for name, test := range map[string]struct {
		config workv1.ManifestConfigOption
		want   string
	}{
		"some of each": {feedback(many[:250]...), ""},
		"many paths":   {feedback(many...), "spec.manifestConfigs[0].feedbackRules: Too many: 251: must have at most 250 items"},
		"a long path": {feedback("a", long), "spec.manifestConfigs[0].feedbackRules[0].jsonPaths[1].path: Invalid value: \"" +
			long[:100] + "…\": the expression: it has 10000 bytes; the limit is 4096 bytes"},
		"many rules": {rules(make([]workv1.ConditionRule, 101)...),
			"spec.manifestConfigs[0].conditionRules: Too many: 101: must have at most 100 items"},
		"many expressions": {rules(workv1.ConditionRule{CelExpressions: many}),
			"spec.manifestConfigs[0].conditionRules: Invalid value: \"1 rules\": CEL expressions: there are 251; the limit is 100"},
		"a long expression": {rules(workv1.ConditionRule{CelExpressions: []string{long}}),
			"spec.manifestConfigs[0].conditionRules[0].celExpressions[0]: Invalid value"},
		"a long message": {rules(workv1.ConditionRule{MessageExpression: long}),
			"spec.manifestConfigs[0].conditionRules[0].messageExpression: Invalid value"},
		"many fields": {ignoring(workv1.IgnoreField{JSONPaths: many[:60], JQPathExpressions: many[:60]}),
			"spec.manifestConfigs[0].updateStrategy.serverSideApply.ignoreFields: Too many: 120: must have at most 100 items"},
		"a long jq": {ignoring(workv1.IgnoreField{JQPathExpressions: []string{long}}),
			"ignoreFields[0].jqPathExpressions[0]: Invalid value"},
		"a long JSON pointer": {ignoring(workv1.IgnoreField{JSONPointers: []string{long}}), "ignoreFields[0].jsonPointers[0]: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work, labelled, code := workOf(configMap), workOf(configMap), 0
			work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{test.config}
			labelled.Spec.ManifestConfigs = []workv1.ManifestConfigOption{test.config}
			var texts []string
			if test.want != "" {
				code, texts = 400, []string{test.want}
			}
			sender := (&fakeAuthorizer{}).sender()
			checkStatus(t, admission.ValidateManifestWork(t.Context(), work, nil, sender, admission.ManifestWorkOptions{}), code, texts...)
			checkStatus(t, admission.ValidateManifestWork(t.Context(), work, workOf(configMap), sender, admission.ManifestWorkOptions{}), code,
				texts...)
			checkStatus(t, admission.ValidateManifestWork(t.Context(), work, labelled, sender, admission.ManifestWorkOptions{}), 0)
			if code == 400 {
				set := setExecutedBy("")
				set.Spec.ManifestWorkTemplate.ManifestConfigs = work.Spec.ManifestConfigs
				checkStatus(t, admission.ValidateManifestWorkReplicaSet(t.Context(), set, nil, sender, admission.ManifestWorkOptions{}), 400,
					strings.Replace(test.want, "spec.manifest", "spec.manifestWorkTemplate.manifest", 1))
			}
		})
	}
}

// Overrides are tried when they, or the manifests that they change, are written.
func TestOverridesAreTried(t *testing.T) {
	t.Parallel()
	const key = "capstan.io/overrides"
	bomb := "- {mergePatch: {list: [a]}, jsonPatch: [" + strings.Repeat("{op: copy, from: /list, path: /list/-}, ", 30) + "]}"
	set, small := setExecutedBy(""), setExecutedBy("")
	set.Annotations, small.Annotations = map[string]string{key: bomb},
		map[string]string{key: "- {manifest: {kind: Other}, mergePatch: {a: b}}"}
	sender := (&fakeAuthorizer{}).sender()
	const want = `bytes": overrides of manifest 0: override 0: jsonPatch: operation 17 (copy /list/-): its copy operations copy too many bytes; the limit is 1048576 bytes`
	checkStatus(t, admission.ValidateManifestWorkReplicaSet(t.Context(), set, nil, sender, admission.ManifestWorkOptions{}), 400, want)
	checkStatus(t, admission.ValidateManifestWorkReplicaSet(t.Context(), set, small, sender, admission.ManifestWorkOptions{}), 400, want)
	checkStatus(t, admission.ValidateManifestWorkReplicaSet(t.Context(), small, set, sender, admission.ManifestWorkOptions{}), 0)
	stored := set.DeepCopy()
	stored.Labels = map[string]string{"a": "b"}
	checkStatus(t, admission.ValidateManifestWorkReplicaSet(t.Context(), stored, set, sender, admission.ManifestWorkOptions{}), 0)
	manifests := set.DeepCopy()
	manifests.Spec.ManifestWorkTemplate.Workload = workOf(configMap, strings.Replace(configMap, `"name":"a"`, `"name":"b"`, 1)).Spec.Workload
	checkStatus(t, admission.ValidateManifestWorkReplicaSet(t.Context(), manifests, set, sender, admission.ManifestWorkOptions{}), 400, want)
}
