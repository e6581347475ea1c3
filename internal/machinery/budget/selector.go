package budget

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Bounds of the label and claim selectors of one field, such as the predicates of a Placement, all together. Each requirement is checked on
// each cluster; SelectorOf finds values by a map, so that a list of names may be long.
const (
	Requirements = 500
	Values       = 20_000
)

// Selectors fails if selectors have more requirements together, or more values in them, than users need.
func Selectors(selectors ...*metav1.LabelSelector) error {
	requirements, values := 0, 0
	for _, selector := range selectors {
		if selector == nil {
			continue
		}
		requirements += len(selector.MatchLabels) + len(selector.MatchExpressions)
		for i := range selector.MatchExpressions {
			values += len(selector.MatchExpressions[i].Values)
		}
	}
	if err := Count("entries of matchLabels and matchExpressions", requirements, Requirements); err != nil {
		return err
	}
	return Count("values of matchExpressions", values, Values)
}

// SelectorOf returns a selector that matches what that of metav1.LabelSelectorAsSelector does, in a time that does not depend on how many
// values it has. It fails if the selector is invalid, or exceeds the bounds alone.
func SelectorOf(selector *metav1.LabelSelector) (labels.Selector, error) {
	if err := Selectors(selector); err != nil {
		return nil, err
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, err
	}
	return withMaps(parsed), nil
}

// mapSelector is a selector that finds the values of long lists by maps. apimachinery compares with each value.
type mapSelector struct {
	labels.Selector                 // all requirements
	short           labels.Selector // those with few values
	long            []longRequirement
}

// longRequirement is In, or NotIn, with many values.
type longRequirement struct {
	key    string
	in     bool
	values sets.Set[string]
}

// withMaps returns an equal selector, with a map for each requirement that has many values.
func withMaps(selector labels.Selector) labels.Selector {
	const few = 8 // compared with each as fast as found by a map
	requirements, _ := selector.Requirements()
	var short []labels.Requirement
	var long []longRequirement
	for i := range requirements {
		r := &requirements[i]
		if values := r.ValuesUnsorted(); len(values) > few { // no operator but In and NotIn has more than one
			long = append(long, longRequirement{key: r.Key(), in: r.Operator() == selection.In, values: sets.New(values...)})
		} else {
			short = append(short, *r)
		}
	}
	if len(long) == 0 {
		return selector
	}
	return &mapSelector{Selector: selector, short: labels.NewSelector().Add(short...), long: long}
}

// Matches reports whether labels meet all requirements.
func (s *mapSelector) Matches(of labels.Labels) bool {
	return s.short.Matches(of) && !slices.ContainsFunc(s.long, func(r longRequirement) bool { return !r.matches(of) })
}

// matches reports whether labels meet the requirement. NotIn is met without the label, too.
func (r *longRequirement) matches(of labels.Labels) bool {
	value, exists := of.Lookup(r.key)
	return r.in == (exists && r.values.Has(value))
}
