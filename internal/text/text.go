// Package text formats numbers and lists for the messages of conditions, events and errors.
package text

import (
	"fmt"
	"strings"
)

// Count formats a number of things: "1 cluster", "2 clusters". The noun has a regular plural.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// few is how many names a message lists.
const few = 3

// FirstFew lists the first three names, and says how many more there are.
func FirstFew(names []string) string {
	if more := len(names) - few; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), more)
	}
	return strings.Join(names, ", ")
}
