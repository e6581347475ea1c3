// Package text formats numbers, lists and quotations for the messages of conditions, events and errors.
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

// Quote is a text as a sentence has it: the beginning of a long one.
func Quote(s string) string {
	const most = 200
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q…", prefix(s, most))
}

// Message is the beginning of what is said in a condition about input of any length. A condition that is too long for the API is not
// written at all.
func Message(s string) string {
	const most = 4 << 10
	if len(s) <= most {
		return s
	}
	return prefix(s, most) + " …"
}

func prefix(s string, bytes int) string { return strings.ToValidUTF8(s[:bytes], "") }
