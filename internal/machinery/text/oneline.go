package text

import (
	"strings"
	"unicode"
)

// OneLine is a text of somebody else without line breaks, and without anything else that a terminal would act on.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}
