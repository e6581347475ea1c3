package budget

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of the label and claim selectors of one field, such as the predicates of a Placement, all together. Each requirement is checked on
// each cluster; values are found by a map, so that a list of names may be long.
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
