package conditions

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// WK-10, WK-12: the work says which of its rules are about no manifest, as long as that is so.
func TestRulesUnmatched(t *testing.T) {
	t.Parallel()
	widget := workv1.ManifestResourceMeta{Group: "example.com", Version: "v1", Kind: "Widget", Namespace: "default", Name: "w"}
	known := widget
	known.Resource = "widgetry"
	of := func(group, resource, name string) workv1.ResourceIdentifier {
		return workv1.ResourceIdentifier{Group: group, Resource: resource, Namespace: "default", Name: name}
	}
	const config, orphaning = "spec.manifestConfigs[0].resourceIdentifier", "spec.deleteOption.selectivelyOrphans.orphaningRules[0]"
	for name, test := range map[string]struct {
		rule     workv1.ResourceIdentifier
		manifest workv1.ManifestResourceMeta
		want     string
	}{
		"the resource":     {of("", "configmaps", "a"), configMap, ""},
		"the kind":         {of("v1", "ConfigMap", "a"), configMap, ""},
		"another name":     {of("", "configmaps", "b"), configMap, "configmaps default/b; the nearest is manifest 0, v1 ConfigMap default/a"},
		"another resource": {of("", "secrets", "b"), configMap, "secrets default/b"},
		"unknown kind":     {of("example.com", "widgetry", "w"), widget, ""},
		"another of an unknown kind": {of("example.com", "widgetry", "x"), widget,
			"widgetry.example.com default/x; the nearest is manifest 0, example.com/v1 Widget default/w"},
		"the resource of the kind": {of("example.com", "widgetry", "w"), known, ""},
		"not the resource": {of("example.com", "widgets", "w"), known,
			"widgets.example.com default/w; the nearest is manifest 0, example.com/v1 Widget default/w"},
		"an unreadable manifest": {of("", "configmaps", "b"), workv1.ManifestResourceMeta{}, ""},
		"all names of none":      {workv1.ResourceIdentifier{Resource: "secrets", Namespace: "*", Name: "*"}, configMap, ""},
		"all names":              {workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "*", Name: "*"}, configMap, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect := func(w *workv1.ManifestWork, want string) {
				t.Helper()
				results := []Result{{Manifest: test.manifest, Presence: Present}}
				Update(w, results, time.Unix(1000, 0))
				if Update(w, results, time.Unix(2000, 0)) {
					t.Error("the same is news")
				}
				cond := meta.FindStatusCondition(w.Status.Conditions, "RulesUnmatched")
				switch {
				case want == "" && cond == nil:
				case cond == nil, cond.Status != metav1.ConditionTrue, cond.Reason != "NoSuchManifest", cond.Message != want,
					cond.ObservedGeneration != w.Generation:
					t.Errorf("condition %+v, want %q", cond, want)
				}
			}
			message := func(path string) string {
				if test.want == "" {
					return ""
				}
				return path + ": no manifest of this work is of " + test.want
			}
			w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
			w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{ResourceIdentifier: test.rule}}
			expect(w, message(config))
			w.Generation, w.Spec.ManifestConfigs = 2, nil
			expect(w, "")
			r := test.rule
			w.Generation = 3
			w.Spec.DeleteOption = &workv1.DeleteOption{SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{
				{Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name}}}}
			expect(w, message(orphaning))
		})
	}
}
