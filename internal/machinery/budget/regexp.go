package budget

import (
	"fmt"
	"regexp/syntax"

	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Bounds of a regular expression. A repetition is written out when the expression is compiled, so that (ab?){500} is a thousand parts to
// try at each character of a text; the length alone says little.
const (
	patternLength = 4096
	patternParts  = 10_000
	patternSteps  = 1 << 24 // parts by bytes of the text
)

// Regexp fails if a regular expression is longer, or repeats more, than users need. It ignores texts that are no regular expressions,
// which fail where they are compiled.
func Regexp(pattern string) error {
	if err := Length("a regular expression", len(pattern), patternLength); err != nil {
		return err
	}
	if RegexpParts(pattern) > patternParts {
		return &Exceeded{What: fmt.Sprintf("the regular expression %s repeats too much: it has too many parts", text.Quote(pattern)),
			Limit: fmt.Sprintf("%d parts", patternParts)}
	}
	return nil
}

// Match fails if matching a text of so many bytes with a regular expression of so many parts would take too long.
func Match(parts, text int) error {
	if parts*max(text, 1) <= patternSteps {
		return nil
	}
	return &Exceeded{What: fmt.Sprintf("a regular expression of %d parts is too much for a text of %d bytes", parts, text),
		Limit: fmt.Sprintf("%d, one multiplied by the other", patternSteps)}
}

// RegexpParts returns about how many instructions a regular expression has. Above the bound, it returns only some number above the
// bound.
func RegexpParts(pattern string) int {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 1
	}
	return partsOf(parsed)
}

func partsOf(expression *syntax.Regexp) int {
	parts := 1
	if expression.Op == syntax.OpLiteral {
		parts += len(expression.Rune)
	}
	for _, sub := range expression.Sub {
		if parts += partsOf(sub); parts > patternParts {
			return parts
		}
	}
	if expression.Op == syntax.OpRepeat {
		parts *= max(expression.Min, expression.Max, 1)
	}
	return parts
}
