package budget

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	in           = metav1.LabelSelectorOpIn
	notIn        = metav1.LabelSelectorOpNotIn
	exists       = metav1.LabelSelectorOpExists
	doesNotExist = metav1.LabelSelectorOpDoesNotExist
)

// A selector matches what that of apimachinery does, and finds the values of long lists by maps.
func TestSelectorOf(t *testing.T) {
	t.Parallel()
	duplicates := []string{"v1", "v1", "v1", "v1", "v1", "v2", "v2", "v2", "v2", "v2"}
	for name, test := range map[string]struct {
		selector *metav1.LabelSelector
		maps     int
	}{
		"none":                {},
		"empty":               {selector: &metav1.LabelSelector{}},
		"labels":              {selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "v1", "b": ""}}},
		"a few":               {selector: requiring("a", in, values(8)...)},
		"not a few":           {selector: requiring("a", notIn, values(8)...)},
		"many":                {selector: requiring("a", in, values(9)...), maps: 1},
		"not many":            {selector: requiring("a", notIn, values(9)...), maps: 1},
		"the same many times": {selector: requiring("a", in, duplicates...), maps: 1},
		"not the same":        {selector: requiring("a", notIn, duplicates...), maps: 1},
		"many, one empty":     {selector: requiring("a", in, append(values(9), "")...), maps: 1},
		"not many, one empty": {selector: requiring("a", notIn, append(values(9), "")...), maps: 1},
		"many and a label": {selector: &metav1.LabelSelector{MatchLabels: map[string]string{"b": "v1"},
			MatchExpressions: requiring("a", in, values(9)...).MatchExpressions}, maps: 1},
		"many of two":          {selector: and(requiring("a", in, values(9)...), requiring("b", notIn, values(9)...)), maps: 2},
		"many of one, twice":   {selector: and(requiring("a", in, values(12)...), requiring("a", notIn, values(9)...)), maps: 2},
		"many, which exist":    {selector: and(requiring("a", notIn, values(9)...), requiring("a", exists)), maps: 1},
		"many, without others": {selector: and(requiring("a", in, values(9)...), requiring("b", doesNotExist)), maps: 1},
		"as many as there may be": {selector: and(requiring("a", in, values(Values/2)...), requiring("b", in, values(Values/2)...)),
			maps: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, err := metav1.LabelSelectorAsSelector(test.selector)
			if err != nil {
				t.Fatal(err)
			}
			got, err := SelectorOf(test.selector)
			if err != nil {
				t.Fatal(err)
			}
			for _, of := range someLabels() {
				if got.Matches(of) != want.Matches(of) {
					t.Errorf("%v: matches: %t, want %t", of, got.Matches(of), want.Matches(of))
				}
			}
			if got.String() != want.String() || got.Empty() != want.Empty() || labels.MatchesNothing(got) != labels.MatchesNothing(want) {
				t.Errorf("is %q, want %q", got, want)
			}
			if maps := mapsOf(got); maps != test.maps {
				t.Errorf("%d requirements have maps, want %d", maps, test.maps)
			}
		})
	}
}

func TestSelectorOfFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		selector *metav1.LabelSelector
		want     string
	}{
		"a key that is none": {requiring("a b", in, values(9)...), "a b"},
		"no such operator":   {requiring("a", "Near", values(9)...), `"Near" is not a valid label selector operator`},
		"too many values":    {requiring("a", in, values(Values+1)...), "values of matchExpressions: there are 20001; the limit is 20000"},
	} {
		if _, err := SelectorOf(test.selector); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, test.want)
		}
	}
}

func BenchmarkSelectorOf(b *testing.B) {
	for _, n := range []int{1, 8, 9, Values} {
		b.Run(fmt.Sprintf("values=%d", n), func(b *testing.B) {
			selector, err := SelectorOf(requiring("a", notIn, values(n)...))
			if err != nil {
				b.Fatal(err)
			}
			of := labels.Set{"a": "none"}
			for b.Loop() {
				if !selector.Matches(of) {
					b.Fatal("it does not match")
				}
			}
		})
	}
}

// someLabels are all combinations of some values of a and b, and of none.
func someLabels() []labels.Set {
	some := []string{"absent", "", "v0", "v1", "v8", "v9", "v11", "other"}
	var all []labels.Set
	for _, a := range some {
		for _, b := range some {
			of := labels.Set{}
			for key, value := range map[string]string{"a": a, "b": b} {
				if value != "absent" {
					of[key] = value
				}
			}
			all = append(all, of)
		}
	}
	return append(all, nil)
}

func requiring(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

// and joins the expressions of selectors.
func and(selectors ...*metav1.LabelSelector) *metav1.LabelSelector {
	joined := &metav1.LabelSelector{}
	for _, selector := range selectors {
		joined.MatchExpressions = append(joined.MatchExpressions, selector.MatchExpressions...)
	}
	return joined
}

func values(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("v%d", i)
	}
	return all
}

func mapsOf(selector labels.Selector) int {
	if with, ok := selector.(*mapSelector); ok {
		return len(with.long)
	}
	return 0
}
