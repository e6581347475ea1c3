package text_test

import (
	"testing"

	"github.com/capstan-io/capstan/internal/machinery/text"
)

func TestOneLine(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"": "", "plain ünï": "plain ünï", "two\nlines\ttab": "two lines tab", "\x1b[2J\u009b2J\x7f": " [2J 2J ", "a\u202eb\u2066c": "a b c",
	} {
		if got := text.OneLine(given); got != want {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"": "", "plain ünï": "plain ünï", "two\nlines\ttab": "two\nlines\ttab", "\x1b[2J\u009b2J\x7f\r": " [2J 2J  ", "a\u202eb\u2066c": "a b c",
	} {
		if got := text.Lines(given); got != want {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
}
