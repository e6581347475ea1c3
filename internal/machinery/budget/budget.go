// Package budget bounds the cost of compiling and running what users and agents write: expressions, paths, patches, templates,
// selectors. A user who may write one object must not be able to exhaust the processor or the memory of the hub or of an agent with it.
//
// A bound is far above honest use, and is enforced in two places. Admission refuses what exceeds it, with the field, the value and the
// bound. The interpreter of the input enforces it, too, for objects that were stored before the bound existed, or by a hub without
// admission; its failure becomes the condition that the API has for input that cannot be used.
//
// Bounds are on lengths, counts, and counted steps, so that the same input always has the same result. Time is a last resort.
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

// Exceeded is the error for input that exceeds a bound.
type Exceeded struct {
	// What there is too much of, as the beginning of a sentence, such as "the patch has 20000 operations".
	What string
	// Limit is the bound, with its unit if that does not follow from What.
	Limit string
}

// Error names what there is too much of, and the bound.
func (e *Exceeded) Error() string { return e.What + "; the limit is " + e.Limit }

// Is reports whether an error is, or wraps, an Exceeded.
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

// NewMeter returns a meter of so many steps. what is the beginning of a sentence for the error, such as "the overrides take more
// steps".
func NewMeter(what string, limit int) *Meter { return &Meter{what: what, left: limit, limit: limit} }

// Spend takes steps. It fails when there are none left, now and from then on.
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

// minResult is what the result of a template may always have: as much as fits into one object.
const minResult = 1 << 20

// Result returns how many bytes the result of a template of so many bytes may have, including everything that is substituted. Template
// and result are objects that have to be stored, so an honest result is hardly larger than an honest template.
func Result(template int) int { return max(minResult, 2*template) }
