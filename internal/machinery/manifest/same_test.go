package manifest

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// The same object written differently is no reason to write a work; a null is, but for those that the API server drops or adds.
func TestSameSpec(t *testing.T) {
	t.Parallel()
	of := func(raw string) *workv1.ManifestWorkSpec {
		return &workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{
			Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}}}}
	}
	for _, test := range []struct {
		have, want string
		same       bool
	}{
		{`{"a":1,"b":2}`, `{"a":1,"b":2}`, true},
		{`{"a":1,"b":2}`, `{"b":2, "a":1}`, true},
		{`{"a":1}`, `{"a":2}`, false},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":1`, `{"a":1}`, false},
		{`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{`{"a":[1]}`, `{"a":[1,2]}`, false},
		{`{"a":{"b":1}}`, `{"a":"b"}`, false},
		{`{"a":"b"}`, `{"a":{"b":1}}`, false},
		{`{"a":[{"b":1}]}`, `{"a":[{"b":1,"c":null}]}`, false},
		{`{"a":1}`, `{"a":1,"b":null}`, false},
		{`{"a":null}`, `{"a":null}`, true},
		{`{"a":1,"b":null}`, `{"a":1}`, false},
		{`{"a":1}`, `{"a":null}`, false},
		{`{"a":null}`, `{"a":1}`, false},
		{`{"a":[null]}`, `{"a":[null]}`, true},
		{`{"a":[]}`, `{"a":[null]}`, false},
		{`{"metadata":{"name":"a"}}`, `{"metadata":{"creationTimestamp":null,"name":"a"}}`, true},
		{`{"metadata":{"creationTimestamp":null,"name":"a"}}`, `{"metadata":{"name":"a"}}`, true},
		{`{"metadata":{"labels":{}}}`, `{"metadata":{"labels":{"a":null}}}`, false},
		{`{"spec":{"metadata":{}}}`, `{"spec":{"metadata":{"creationTimestamp":null}}}`, false},
	} {
		if SameSpec(of(test.have), of(test.want)) != test.same {
			t.Errorf("%s for %s: same is not %t", test.have, test.want, test.same)
		}
	}
	orphaned := of("{}")
	orphaned.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	if SameSpec(of("{}"), orphaned) {
		t.Error("another deleteOption is taken for the same")
	}
}
