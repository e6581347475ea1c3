package admission_test

import (
	"fmt"
	"strings"
	"testing"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/admission"
)

// WK-01: users are warned of what of a manifest is not applied, when they create a work or change its manifests, and not of thousands.
func TestManifestWorkWarnings(t *testing.T) {
	t.Parallel()
	exported := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"n","name":%q,
			"annotations":{"deployment.kubernetes.io/revision":"3"}}}`, name)
	}
	work := workOf(configMap, exported("web"))
	const want = "spec.workload.manifests[1], apps/v1 Deployment n/web: not applied, because the cluster that it was exported from has set it: " +
		"metadata.annotations[deployment.kubernetes.io/revision]"
	if got := admission.ManifestWorkWarnings(work, nil); len(got) != 1 || got[0] != want {
		t.Errorf("a new work: %q, want %q", got, want)
	}
	relabelled := work.DeepCopy()
	relabelled.Labels = map[string]string{"a": "b"}
	if got := admission.ManifestWorkWarnings(relabelled, work); got != nil {
		t.Errorf("other labels: %q", got)
	}
	if got := admission.ManifestWorkWarnings(work, workOf(configMap)); len(got) != 1 {
		t.Errorf("other manifests: %q", got)
	}
	owned := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"n","name":"b",
		"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"1"}]}}`
	const leftOut = "spec.workload.manifests[1], v1 ConfigMap n/b: metadata.ownerReferences: owners that do not exist on the cluster under their " +
		"uid are not applied"
	if got := admission.ManifestWorkWarnings(workOf(configMap, owned), nil); len(got) != 1 || got[0] != leftOut {
		t.Errorf("an owner: %q, want %q", got, leftOut)
	}
	var many []string
	for i := range 12 {
		many = append(many, exported(fmt.Sprint("web", i)))
	}
	got := admission.ManifestWorkWarnings(workOf(many...), nil)
	if len(got) != 11 || got[10] != "the same holds for 2 more manifests" || len(strings.Join(got, "")) > 4096 {
		t.Errorf("twelve manifests: %q", got)
	}
}

// WK-10: the template of a ManifestWorkReplicaSet is warned of as the works that are made of it.
func TestReplicaSetWarnings(t *testing.T) {
	t.Parallel()
	work := workOf(configMap)
	work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{ResourceIdentifier: workv1.ResourceIdentifier{Resource: "secrets", Name: "a"}}}
	set := &workv1alpha1.ManifestWorkReplicaSet{Spec: workv1alpha1.ManifestWorkReplicaSetSpec{ManifestWorkTemplate: work.Spec}}
	got := admission.ManifestWorkReplicaSetWarnings(set, nil)
	const want = "spec.manifestWorkTemplate.manifestConfigs[0].resourceIdentifier: no manifest of this work is of secrets a; the nearest is " +
		"manifest 0, v1 ConfigMap n/a"
	if len(got) != 1 || got[0] != want {
		t.Errorf("a new set: %q, want %q", got, want)
	}
	if got := admission.ManifestWorkReplicaSetWarnings(set, set.DeepCopy()); got != nil {
		t.Errorf("the same spec: %q", got)
	}
}

// WK-10, WK-12: a rule that is about no manifest does nothing, of which users are warned, with what they may have meant.
func TestRulesAboutNoManifest(t *testing.T) {
	t.Parallel()
	const widget = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"n","name":"w"}}`
	for name, test := range map[string]struct {
		rule workv1.ResourceIdentifier
		want string
	}{
		"the resource":      {workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "n", Name: "a"}, ""},
		"the kind":          {workv1.ResourceIdentifier{Group: "v1", Resource: "ConfigMap", Namespace: "n", Name: "a"}, ""},
		"any name":          {workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "*", Name: "*"}, ""},
		"a custom resource": {workv1.ResourceIdentifier{Group: "example.com", Resource: "widgetries", Namespace: "n", Name: "w"}, ""},
		"another name": {workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "n", Name: "b"},
			"configmaps n/b; the nearest is manifest 0, v1 ConfigMap n/a"},
		"another group": {workv1.ResourceIdentifier{Group: "apps", Resource: "configmaps", Namespace: "n", Name: "a"},
			"configmaps.apps n/a; the nearest is manifest 0, v1 ConfigMap n/a"},
		"nothing like it": {workv1.ResourceIdentifier{Resource: "secrets", Namespace: "n", Name: "b"}, "secrets n/b"},
		"no namespace": {workv1.ResourceIdentifier{Resource: "configmaps", Name: "a"},
			"configmaps a; the nearest is manifest 0, v1 ConfigMap n/a"},
		"another custom object": {workv1.ResourceIdentifier{Group: "example.com", Resource: "widgets", Namespace: "n", Name: "x"},
			"widgets.example.com n/x; the nearest is manifest 1, example.com/v1 Widget n/w"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			configured, orphaning := workOf(configMap, widget), workOf(configMap, widget)
			configured.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{ResourceIdentifier: test.rule}}
			got := admission.ManifestWorkWarnings(configured, workOf(configMap, widget))
			if !is(got, "spec.manifestConfigs[0].resourceIdentifier", test.want) {
				t.Errorf("a manifestConfig: %q, want %q", got, test.want)
			}
			if strings.Contains(test.rule.Name, "*") {
				return
			}
			rule := workv1.OrphaningRule{Group: test.rule.Group, Resource: test.rule.Resource, Namespace: test.rule.Namespace, Name: test.rule.Name}
			rules := []workv1.OrphaningRule{rule}
			orphaning.Spec.DeleteOption = &workv1.DeleteOption{SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: rules}}
			got = admission.ManifestWorkWarnings(orphaning, nil)
			if !is(got, "spec.deleteOption.selectivelyOrphans.orphaningRules[0]", test.want) {
				t.Errorf("an orphaning rule: %q, want %q", got, test.want)
			}
		})
	}
}

// is reports whether there is one warning, of the field, or none if nothing is wanted.
func is(warnings []string, field, want string) bool {
	if want == "" {
		return len(warnings) == 0
	}
	return len(warnings) == 1 && warnings[0] == field+": no manifest of this work is of "+want
}
