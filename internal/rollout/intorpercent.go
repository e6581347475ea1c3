package rollout

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/capstan-io/capstan/internal/machinery/text"
)

// intOrPercent is a number of clusters, or a percentage of them. It is not negative, and at most 100 %.
type intOrPercent struct {
	path    *field.Path // The field. Nil for a default, which is not noted when it does not fit.
	value   int
	percent bool
}

// parseIntOrPercent parses a number, a number in a string, or a percentage.
func (p *problems) parseIntOrPercent(path *field.Path, written intstr.IntOrString) intOrPercent {
	result := intOrPercent{path: path, value: written.IntValue()}
	if written.Type == intstr.String {
		digits, percent := strings.CutSuffix(written.StrVal, "%")
		value, err := strconv.Atoi(digits)
		if err != nil {
			p.invalid(path, written.StrVal, "write a number of clusters such as 3, or a percentage such as 25%")
			return intOrPercent{}
		}
		result.value, result.percent = value, percent
	}
	switch {
	case result.value < 0:
		p.clamp(path, written.String(), "0", "a number of clusters is not negative")
		result.value = 0
	case result.percent && result.value > 100:
		p.clamp(path, written.String(), "100%", "a percentage of clusters is at most 100%")
		result.value = 100
	}
	return result
}

// of returns the number of clusters out of a total. Percentages are rounded up.
func (a intOrPercent) of(total int) int {
	if !a.percent {
		return a.value
	}
	return (a.value*total + 99) / 100
}

// slots returns a maxConcurrency that fits the number of clusters: at least one can begin.
func (a intOrPercent) slots(total int) (slots int, note string) {
	limit := a.of(total)
	switch {
	case a.path == nil || total == 0:
	case limit < 1:
		note = fmt.Sprintf("%s: %s lets no cluster begin: 1 at a time is used", a.path, a)
	case limit > total:
		note = fmt.Sprintf("%s: %s is more than the %s it is about: %d is used", a.path, a, text.Count(total, "cluster"), total)
	}
	return min(max(limit, 1), total), note
}

// tolerated returns a maxFailures that fits the number of clusters.
func (a intOrPercent) tolerated(total int) (tolerated int, tooLarge bool) {
	limit := a.of(total)
	return min(limit, total), limit > total && total > 0
}

func (a intOrPercent) String() string {
	if a.percent {
		return fmt.Sprintf("%d%%", a.value)
	}
	return strconv.Itoa(a.value)
}
