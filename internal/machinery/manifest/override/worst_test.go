package override_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/manifest/override"
)

// worst are sets that take long for what they are: those that admission accepts are as dear as a cluster can be.
var worst = map[string]struct {
	overrides string
	manifests []workv1.Manifest
}{
	"many operations on many manifests": {
		"- set: [" + strings.Repeat("{path: /data/key, clusterName: true}, ", 999) + "]", many(19, `{"key":"a"}`),
	},
	"one operation on many manifests": {"- set: [{path: /data/key, clusterName: true}]", many(8_000, `{}`)},
	"merge patches of many members": {
		"- mergePatch: {data: {" + numbered(20_000, "a%d: {}") + "}}", many(2, `{}`),
	},
	"elements of a long list": {
		"- set: [" + strings.Repeat("{path: /data/0, clusterName: true}, ", 900) + "]", many(1, "["+strings.Repeat("0,", 450_000)+"0]"),
	},
	"insertions into a long list": {
		"- jsonPatch: [" + strings.Repeat("{op: add, path: /data/0, value: 1}, ", 10) + "]", many(1, "["+strings.Repeat("0,", 450_000)+"0]"),
	},
	"a long list for each override": {
		strings.Repeat("- {clusters: {names: [c1]}, set: [{path: /data/0, clusterName: true}]}\n", 900),
		many(1, "["+strings.Repeat("{},", 300_000)+"0]"),
	},
	"members of a large object": {
		"- set: [" + strings.Repeat("{path: /data/new, clusterName: true}, ", 900) + "]", many(1, "{"+numbered(100_000, `"k%06d":0`)+"}"),
	},
	"many members of a large object": {
		"- set: [" + numbered(40, "{path: /data/n%d, clusterName: true}") + "]", many(1, "{"+numbered(100_000, `"k%06d":0`)+"}"),
	},
	"deep paths": {
		"- set: [" + strings.Repeat("{path: /data"+strings.Repeat("/a", 100)+", clusterName: true}, ", 999) + "]", many(15, `{}`),
	},
	"a deep manifest": {
		"- set: [{path: /data" + strings.Repeat("/a", 3000) + "/b, clusterName: true}]",
		many(1, strings.Repeat(`{"a":`, 3000)+`{"b":1,"c":"`+strings.Repeat("c", 900_000)+`"}`+strings.Repeat("}", 3000)),
	},
	"copies": {
		"- jsonPatch: [" + strings.Repeat("{op: copy, from: /data/b, path: /data/a}, ", 900) + "]",
		many(1, `{"a":0,"b":["`+strings.Repeat("c", 1000)+`"]}`),
	},
	"copies of a list": {
		"- jsonPatch: [{op: add, path: /data/-, value: 1}, " + strings.Repeat("{op: copy, from: /data, path: /metadata/a}, ", 1) +
			"{op: add, path: /data/-, value: 1}]",
		many(1, "["+strings.Repeat("0,", 250_000)+"0]"),
	},
	"tests of a long text": {
		"- jsonPatch: [" + strings.Repeat(`{op: test, path: /data, value: "a"}, `, 5) + "]\n", many(1, `"`+strings.Repeat(`\"`, 450_000)+`"`),
	},
	"a large manifest, one field": {"- set: [{path: /metadata/labels/a, clusterName: true}]", many(1, `"`+strings.Repeat(`a`, 900_000)+`"`)},
	"an ordinary set": {
		"- {manifest: {kind: ConfigMap}, set: [{path: /data/region, claim: region}, {path: /data/cluster, clusterName: true}]}\n" +
			"- {mergePatch: {metadata: {labels: {team: a}}}}", many(10, `{"region":"","cluster":"","text":"`+strings.Repeat("a", 1000)+`"}`),
	},
}

func numbered(n int, format string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(all, ",")
}

func many(n int, data string) (all []workv1.Manifest) {
	for i := range n {
		raw := fmt.Sprintf(`{"apiVersion":"v1","data":%s,"kind":"ConfigMap","metadata":{"name":"a%d"}}`, data, i)
		all = append(all, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(raw)}})
	}
	return all
}

// Nothing that can be written takes many steps: what would is refused, when it is written and when it is used. BenchmarkRender says how
// long the steps take.
func TestWorstCases(t *testing.T) {
	t.Parallel()
	for name, test := range worst {
		t.Run(name, func(t *testing.T) {
			overrides, errs := override.Parse(field.NewPath("o"), test.overrides)
			t.Parallel()
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			r, err := override.NewRenderer(overrides, test.manifests)
			if err != nil {
				t.Fatal(err)
			}
			var cost int
			for _, cluster := range []string{"c1", "c1"} { // the first one has the manifests read
				v, err := r.Variant(override.Cluster{Name: cluster, Claims: map[string]string{"region": "eu"}})
				if err != nil {
					t.Fatal(err)
				}
				_, cost, err = r.Render(v)
				if tried := override.Try(overrides, test.manifests); tried == nil && budget.Is(err) {
					t.Errorf("admission accepts what is refused later: %v", err)
				}
			}
			if cost > 30_000 {
				t.Errorf("it takes %d steps", cost)
			}
			if ordinary := strings.HasPrefix(name, "an ordinary"); ordinary && cost > 100 {
				t.Errorf("it takes %d steps", cost)
			}
		})
	}
}

// What one more cluster costs.
func BenchmarkRender(b *testing.B) {
	for name, test := range worst {
		b.Run(name, func(b *testing.B) {
			overrides, errs := override.Parse(field.NewPath("o"), test.overrides)
			if len(errs) > 0 {
				b.Fatal(errs)
			}
			r, err := override.NewRenderer(overrides, test.manifests)
			if err != nil {
				b.Fatal(err)
			}
			accepted := 0.0
			if override.Try(overrides, test.manifests) == nil {
				accepted = 1
			}
			steps := render(b, r)
			for b.Loop() {
				steps = render(b, r)
			}
			b.ReportMetric(accepted, "accepted")
			b.ReportMetric(float64(steps), "steps-and-bytes")
		})
	}
}

func render(b *testing.B, r *override.Renderer) int {
	b.Helper()
	v, err := r.Variant(override.Cluster{Name: "c1", Claims: map[string]string{"region": "eu"}})
	if err != nil {
		b.Fatal(err)
	}
	_, cost, _ := r.Render(v)
	return cost
}
