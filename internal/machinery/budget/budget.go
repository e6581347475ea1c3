// Package budget bounds what it takes to compile and to run what users and agents write: expressions, paths, patches, templates,
// selectors. Whoever may write one object must not be able to take the processor or the memory of the hub or of an agent with it.
//
// A bound is far above honest use, and holds in two places: admission refuses what goes beyond it, with the field, the value and the
// bound; and what interprets the input keeps to it by itself, for objects that were stored before there was the bound, or by a hub
// without admission. There the failure becomes the condition that the contract has for input that cannot be used.
//
// Bounds are on lengths, counts, and steps that are counted, so that the same input always has the same result. Time is a last resort.
//
//	budget             counts and sizes, label selectors, regular expressions, YAML
//	budget/celbudget   CEL
//	budget/jqbudget    jq
//	budget/pathbudget  JSONPath
package budget

import (
	"errors"
	"fmt"
)

// Exceeded is the error of what goes beyond a bound.
type Exceeded struct {
	// What there is too much of, as the beginning of a sentence, such as "the patch has 20000 operations".
	What string
	// Limit is the bound, with its unit if that does not follow from What.
	Limit string
}

// Error names what there is too much of, and the bound.
func (e *Exceeded) Error() string { return e.What + "; the limit is " + e.Limit }

// Is tells whether an error is, or wraps, one of what goes beyond a bound.
func Is(err error) bool {
	var exceeded *Exceeded
	return errors.As(err, &exceeded)
}

// Count fails if there are more things than the limit.
func Count(what string, n, limit int) error {
	if n <= limit {
		return nil
	}
	return &Exceeded{What: fmt.Sprintf("%s: there are %d", what, n), Limit: fmt.Sprint(limit)}
}

// Length fails if a text, or what is written as one, has more bytes than the limit.
func Length(what string, n, limit int) error {
	if n <= limit {
		return nil
	}
	return &Exceeded{What: fmt.Sprintf("%s: it has %d bytes", what, n), Limit: fmt.Sprintf("%d bytes", limit)}
}

// Bounds of the expressions that name fields of a manifest for an agent to ignore: jq, JSON paths and JSON pointers.
const (
	// FieldExpressions is how many a manifest may have.
	FieldExpressions = 100
	// FieldExpressionBytes is how long one may be.
	FieldExpressionBytes = 4 << 10
)

// Meter counts steps. It is for one goroutine.
type Meter struct {
	what        string
	left, limit int
}

// NewMeter returns a meter of so many steps. What takes them is the beginning of a sentence, such as "the overrides take more steps".
func NewMeter(what string, limit int) *Meter { return &Meter{what: what, left: limit, limit: limit} }

// Spend takes steps, and fails when there are none left, then and from then on.
func (m *Meter) Spend(steps int) error {
	if steps > m.left {
		m.left = 0
		return &Exceeded{What: m.what, Limit: fmt.Sprint(m.limit)}
	}
	m.left -= steps
	return nil
}

// Spent is how many steps were taken.
func (m *Meter) Spent() int { return m.limit - m.left }

// minResult is what a template may become in any case: as much as fits into one object.
const minResult = 1 << 20

// Result is how many bytes may become of a template of so many bytes, with all that is put into it. Template and result are objects that
// have to be stored, so that an honest result is hardly larger than an honest template.
func Result(template int) int { return max(minResult, 2*template) }
