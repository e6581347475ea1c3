package conditions

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// WK-22 WK-37: whatever a work is to report, it fits into what a hub stores, with the conditions of the work, and says what is left
// out. What is left out is left out in the same way the next time, without another write.
func TestStatusFits(t *testing.T) {
	t.Parallel()
	present, failed := Result{Presence: Present}, Result{Err: errors.New(strings.Repeat("e", 2000))}
	reading := func(values, size int) Result {
		r := Result{Presence: Present, Reading: &Reading{}}
		r.Query.FeedbackRules = []workv1.FeedbackRule{{Type: workv1.JSONPathsType}}
		for i := range values {
			r.Reading.Values = append(r.Reading.Values, workv1.FeedbackValue{Name: fmt.Sprint("value", i),
				Value: workv1.FieldValue{Type: workv1.String, String: ptr.To(strings.Repeat("v", size))}})
		}
		return r
	}
	for name, test := range map[string]struct {
		manifests, bytes int
		result           Result
		omitted          []string
	}{
		"500 small manifests":    {manifests: 500, bytes: 200, result: present},
		"a large manifest":       {manifests: 1, bytes: 1 << 20, result: present},
		"2,000 small manifests":  {manifests: 2000, bytes: 200, result: present, omitted: []string{"conditions of "}},
		"10,000 small manifests": {manifests: 10000, bytes: 60, result: present, omitted: []string{"conditions of 10000 of 10000", "everything about "}},
		"feedback":               {manifests: 100, bytes: 200, result: reading(10, 500)},
		"much feedback of many":  {manifests: 100, bytes: 200, result: reading(40, 1000), omitted: []string{"feedback values of "}},
		"much feedback of one":   {manifests: 1, bytes: 200, result: reading(200, 10000), omitted: []string{"feedback values of 1 of 1"}},
		"long messages":          {manifests: 1000, bytes: 200, result: failed, omitted: []string{"ends of messages of "}},
		"many long messages":     {manifests: 2000, bytes: 520, result: failed, omitted: []string{"messages of 2000 of 2000", "conditions of"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "w", Generation: 3}}
			var results []Result
			manifest := workv1.Manifest{RawExtension: runtime.RawExtension{Raw: fmt.Appendf(nil, `{"a":%q}`, strings.Repeat("x", test.bytes-8))}}
			for i := range test.manifests {
				w.Spec.Workload.Manifests = append(w.Spec.Workload.Manifests, manifest)
				result := test.result
				result.Manifest = workv1.ManifestResourceMeta{Ordinal: int32(i), Version: "v1", Kind: "ConfigMap", Resource: "configmaps",
					Namespace: "default", Name: fmt.Sprint("object", i)}
				results = append(results, result)
			}
			Update(w, results, time.Unix(1000, 0))
			encoded, err := json.Marshal(w)
			if err != nil || len(encoded) > 1450<<10 {
				t.Errorf("the work has %d KiB, %v", len(encoded)>>10, err)
			}
			if meta.FindStatusCondition(w.Status.Conditions, "Applied") == nil || len(w.Status.ResourceStatus.Manifests) == 0 {
				t.Errorf("conditions %v, and %d manifests", w.Status.Conditions, len(w.Status.ResourceStatus.Manifests))
			}
			said := ""
			if truncated := meta.FindStatusCondition(w.Status.Conditions, "StatusTruncated"); truncated != nil {
				said = truncated.Message
			}
			if (said == "") != (len(test.omitted) == 0) {
				t.Errorf("it says %q", said)
			}
			for _, omitted := range test.omitted {
				if !strings.Contains(said, omitted) {
					t.Errorf("it says %q, without %q", said, omitted)
				}
			}
			if Update(w, results, time.Unix(2000, 0)) {
				t.Error("the same status is written again")
			}
			Update(w, results[:1], time.Unix(3000, 0))
			if test.manifests > 1 && meta.FindStatusCondition(w.Status.Conditions, "StatusTruncated") != nil {
				t.Error("the status is truncated when there is room again")
			}
		})
	}
}
