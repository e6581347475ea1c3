package celselector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

func cluster() *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "c1",
			Labels:      map[string]string{"region": "eu"},
			Annotations: map[string]string{"facts": `{"racks": [1, 2]}`},
		},
		Status: clusterv1.ManagedClusterStatus{
			Version:       clusterv1.ManagedClusterVersion{Kubernetes: "v1.31.4"},
			Allocatable:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")},
			ClusterClaims: []clusterv1.ManagedClusterClaim{{Name: "platform", Value: "AWS"}},
		},
	}
}

func scores(name string) []clusterv1alpha1.AddOnPlacementScoreItem {
	if name != "usage" {
		return nil
	}
	return []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "cpu", Value: 66}, {Name: "mem", Value: -5}}
}

func unlimited() *Costs { return NewCosts(context.Background(), math.MaxInt64) }

// PL-03 SD-08
func TestMatches(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		expressions []string
		err         string
	}{
		"none":          {},
		"labels":        {expressions: []string{`managedCluster.metadata.labels["region"] == "eu"`}},
		"all must hold": {expressions: []string{`true`, `managedCluster.metadata.name == "c2"`}, err: "is false"},
		"claims": {expressions: []string{
			`managedCluster.status.clusterClaims.exists(c, c.name == "platform" && c.value == "AWS")`}},
		"scores":               {expressions: []string{`managedCluster.scores("usage").filter(s, s.name == "cpu").all(s, s.value > 60)`}},
		"quantities of scores": {expressions: []string{`managedCluster.scores("usage").exists(s, s.quantity.isGreaterThan(quantity("60")))`}},
		"no such score":        {expressions: []string{`managedCluster.scores("other").size() == 0`}},
		"semantic versions": {expressions: []string{
			`semver(managedCluster.status.version.kubernetes, true).isGreaterThan(semver("1.30.0"))`}},
		"quantities":            {expressions: []string{`quantity(managedCluster.status.allocatable.cpu).isLessThan(quantity("9"))`}},
		"JSON":                  {expressions: []string{`managedCluster.metadata.annotations["facts"].parseJSON().racks.size() == 2`}},
		"optional values":       {expressions: []string{`managedCluster.metadata.?labels["zone"].orValue("none") == "none"`}},
		"has":                   {expressions: []string{`has(managedCluster.metadata.labels) && !has(managedCluster.metadata.finalizers)`}},
		"a failing one":         {expressions: []string{`managedCluster.metadata.labels["zone"] == "a"`}, err: "no such key"},
		"no JSON":               {expressions: []string{`"{".parseJSON().a == 1`}, err: "parseJSON"},
		"dynamic, but no bool":  {expressions: []string{`managedCluster.metadata.name`}, err: "is a string; it must be a bool"},
		"scores of another map": {expressions: []string{`{"a": dyn(1)}.scores("usage").size() == 0`}, err: "managedCluster alone"},
		"one over budget":       {expressions: []string{costly(4)}, err: "cost limit"},
		"too many": {
			expressions: []string{costly(3), costly(3), costly(3), costly(3), costly(3), costly(3), costly(3), costly(3), costly(3), costly(3),
				costly(3), costly(3), costly(3), costly(3), costly(3), costly(3), costly(3), costly(3), costly(3), costly(3), costly(3), costly(3)},
			err: "cost too much",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			selector, err := Compile(test.expressions)
			if err != nil {
				t.Fatal(err)
			}
			err = selector.Matches(NewCluster(cluster(), scores, unlimited()))
			if test.err == "" && err != nil {
				t.Fatal(err)
			}
			if test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Fatalf("got %v, want an error about %q", err, test.err)
			}
		})
	}
}

// PL-03: failed evaluations cost, too.
func TestCosts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		expressions []string
		least       int64
	}{
		"one":            {[]string{costly(1)}, 100},
		"two":            {[]string{costly(1), costly(1)}, 300},
		"one that fails": {[]string{costly(4)}, 1000},
	} {
		selector, err := Compile(test.expressions)
		if err != nil {
			t.Fatal(err)
		}
		costs := unlimited()
		if err := selector.Matches(NewCluster(cluster(), scores, costs)); costs.Spent() < test.least {
			t.Errorf("%s: spent %d, want at least %d; error %v", name, costs.Spent(), test.least, err)
		}
	}
}

// PL-03: Kubernetes' limit for one object is for all selectors of a cluster together, and each cluster has its own.
func TestLimitOfCluster(t *testing.T) {
	t.Parallel()
	cheapOne, err := Compile([]string{"true"})
	if err != nil {
		t.Fatal(err)
	}
	costlyOne, err := Compile([]string{`[1, 2, 3, 4, 5, 6, 7, 8, 9].exists(x, managedCluster.scores("usage").size() == 0)`})
	if err != nil {
		t.Fatal(err)
	}
	items := make([]clusterv1alpha1.AddOnPlacementScoreItem, 100_000) // which cost much, and take little time
	costs := unlimited()
	for range 2 {
		before := costs.Spent()
		c := NewCluster(cluster(), func(string) []clusterv1alpha1.AddOnPlacementScoreItem { return items }, costs)
		if err := cheapOne.Matches(c); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if err := costlyOne.Matches(c); err == nil {
				t.Fatal("it matches")
			}
		}
		if spent := costs.Spent() - before; spent < celconfig.RuntimeCELCostBudget ||
			spent > celconfig.RuntimeCELCostBudget+celconfig.PerCallLimit+1000 {
			t.Errorf("one cluster costs %d", spent)
		}
		if err := cheapOne.Matches(c); !errors.Is(err, errOverBudget) {
			t.Errorf("got %v, want that it costs too much", err)
		}
	}
}

// An evaluation ends when nobody waits for it any more, also within an expression, and then no cluster matches.
func TestInterruptedEvaluation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		expression string
		before     bool // whether it ends before it begins
		most       int64
	}{
		"before":              {expression: "true", before: true},
		"within a loop":       {expression: `managedCluster.scores("usage").size() == 0 && ` + costly(3), most: 10_000},
		"one that hides that": {expression: `managedCluster.scores("usage").size() == 0 && (` + costly(3) + ` || true)`, most: 10_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			selector, err := Compile([]string{test.expression})
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(t.Context())
			defer end()
			if test.before {
				end()
			}
			costs := NewCosts(ctx, math.MaxInt64)
			err = selector.Matches(NewCluster(cluster(), func(string) []clusterv1alpha1.AddOnPlacementScoreItem { end(); return nil }, costs))
			if !errors.Is(err, context.Canceled) || !costs.Ended() || costs.Exceeded() {
				t.Errorf("got %v, want that it is interrupted", err)
			}
			if costs.Spent() > test.most {
				t.Errorf("spent %d, want %d at most", costs.Spent(), test.most)
			}
		})
	}
}

// PL-03: reading scores costs by their number, so that the limit of an expression bounds how many it reads, and a list that is read again
// is not built again.
func TestCostsOfScores(t *testing.T) {
	t.Parallel()
	const sum = `[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].all(x, managedCluster.scores("usage").size() >= 0)`
	for name, test := range map[string]struct {
		items      int
		expression string
		least      int64
		err        string
	}{
		"none":         {0, `managedCluster.scores("usage").size() == 0`, 10, ""},
		"a few":        {10, `managedCluster.scores("usage").size() == 10`, 20, ""},
		"many":         {20_000, `managedCluster.scores("usage").size() == 20000`, 20_010, ""},
		"a few, often": {10, sum, 240, ""},
		"many, often":  {100_000, sum, 1_000_000, "cost limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			selector, err := Compile([]string{test.expression})
			if err != nil {
				t.Fatal(err)
			}
			built, items := 0, make([]clusterv1alpha1.AddOnPlacementScoreItem, test.items)
			costs := unlimited()
			err = selector.Matches(NewCluster(cluster(),
				func(string) []clusterv1alpha1.AddOnPlacementScoreItem { built++; return items }, costs))
			if built != 1 {
				t.Errorf("the list is built %d times", built)
			}
			if spent := costs.Spent(); spent < test.least || spent > 2*test.least+100 {
				t.Errorf("spent %d, want about %d", spent, test.least)
			}
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want an error about %q", err, test.err)
			}
		})
	}
}

// PL-03: a list of scores is the one that is asked for, whichever was read before.
func TestScoresByName(t *testing.T) {
	t.Parallel()
	selector, err := Compile([]string{`["usage", "other", "usage"].map(name, managedCluster.scores(name).size()) == [2, 0, 2]`})
	if err != nil {
		t.Fatal(err)
	}
	if err := selector.Matches(NewCluster(cluster(), scores, unlimited())); err != nil {
		t.Error(err)
	}
}

// PL-03: an expression sees what is in the JSON of a cluster, and the status always.
func TestClusterAsJSON(t *testing.T) {
	t.Parallel()
	full := cluster()
	full.APIVersion, full.Kind = "cluster.open-cluster-management.io/v1", "ManagedCluster"
	full.CreationTimestamp, full.Finalizers = metav1.Unix(1e9, 0), []string{"a/b"}
	full.Spec.Taints = []clusterv1.Taint{{Key: "a", Effect: clusterv1.TaintEffectNoSelect, TimeAdded: metav1.Unix(1e9, 0)}}
	full.Spec.HubAcceptsClient, full.Spec.LeaseDurationSeconds = true, 60
	full.Status.Conditions = []metav1.Condition{{Type: "Joined", Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(1e9, 0)}}
	empty := &clusterv1.ManagedCluster{TypeMeta: full.TypeMeta}
	for _, c := range []*clusterv1.ManagedCluster{full, empty} {
		want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
		if err != nil {
			t.Fatal(err)
		}
		if want["status"] == nil { // so that has(managedCluster.status.version) is false, and no error
			want["status"] = map[string]any{}
		}
		seen, ok := newClusterValue(c, nil).(traits.Mapper)
		if !ok || seen.Equal(types.DefaultTypeAdapter.NativeToValue(want)) != types.True || seen.Size() != types.Int(len(want)) {
			t.Errorf("an expression sees %v, want %v", seen, want)
		}
	}
}

// costly is an expression of nested loops over 60 numbers.
func costly(depth int) string {
	numbers := "[" + strings.TrimSuffix(strings.Repeat("1,", 60), ",") + "]"
	expression := "true"
	for i := range depth {
		expression = numbers + ".all(x" + string(rune('a'+i)) + ", " + expression + ")"
	}
	return expression
}

// PL-29
func TestCompileFails(t *testing.T) {
	t.Parallel()
	for name, expressions := range map[string][]string{
		"syntax":           {"true", "managedCluster."},
		"unknown variable": {"true", "cluster.metadata.name == 'a'"},
		"not a bool":       {"true", "1 + 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Compile(expressions)
			if err == nil || !strings.Contains(err.Error(), "celExpressions[1]: compilation failed") {
				t.Fatalf("got %v, want a compilation error of celExpressions[1]", err)
			}
		})
	}
}

// Expressions are not evaluated beyond the limit, and compiling again has a cost.
func TestLimitOfCosts(t *testing.T) {
	t.Parallel()
	selector, err := Compile([]string{"1 < 2 && 'of its own' != ''"})
	if err != nil {
		t.Fatal(err)
	}
	costs := NewCosts(t.Context(), 1)
	if err := selector.Matches(NewCluster(cluster(), scores, costs)); err != nil || !costs.Exceeded() {
		t.Errorf("%v, spent %d", err, costs.Spent())
	}
	if err := selector.Matches(NewCluster(cluster(), scores, costs)); err == nil {
		t.Error("it is evaluated beyond what it may cost")
	}
	again, once := unlimited(), unlimited()
	forgotten := &Selector{expressions: []string{fmt.Sprintf("1 < 2 && %d != 0 // not compiled yet", rand.Int64())}}
	for _, costs := range []*Costs{again, once} {
		if err := forgotten.Matches(NewCluster(cluster(), scores, costs)); err != nil {
			t.Fatal(err)
		}
	}
	if again.Spent() <= once.Spent() {
		t.Errorf("compiled at a cost of %d, without %d", again.Spent(), once.Spent())
	}
}
