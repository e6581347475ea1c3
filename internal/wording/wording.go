// Package wording puts numbers and lists into the sentences of conditions, events and errors.
package wording

import (
	"fmt"
	"strings"
)

// Count is a number of things, of which there is a regular plural.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// few is how many of many names a sentence holds.
const few = 3

// FirstFew names the first of many, and says how many there are beside them.
func FirstFew(names []string) string {
	if more := len(names) - few; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), more)
	}
	return strings.Join(names, ", ")
}
