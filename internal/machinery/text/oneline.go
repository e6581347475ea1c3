package text

import (
	"strings"
	"unicode"
)

// OneLine is a text of somebody else without line breaks, and without anything else that a terminal would act on.
func OneLine(text string) string { return withoutControls(text, "") }

// Lines is OneLine for a text that may have several lines, and tabs in them.
func Lines(text string) string { return withoutControls(text, "\n\t") }

// withoutControls has spaces in place of control characters, and of those that change the direction of what follows, but for some.
func withoutControls(text, but string) string {
	return strings.Map(func(r rune) rune {
		if (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) && !strings.ContainsRune(but, r) {
			return ' '
		}
		return r
	}, text)
}
