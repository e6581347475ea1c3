package text_test

import (
	"testing"

	"github.com/capstan-io/capstan/internal/machinery/text"
)

func TestTextOfOthers(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]struct{ oneLine, lines string }{
		"":                      {"", ""},
		"plain ünï":             {"plain ünï", "plain ünï"},
		"two\nlines\ttab":       {"two lines tab", "two\nlines\ttab"},
		"\x1b[2J\u009b2J\x7f\r": {" [2J 2J  ", " [2J 2J  "},
		"a\u202eb\u2066c":       {"a b c", "a b c"},
	} {
		if got := text.OneLine(given); got != want.oneLine {
			t.Errorf("%q in one line becomes %q, want %q", given, got, want.oneLine)
		}
		if got := text.Lines(given); got != want.lines {
			t.Errorf("%q in lines becomes %q, want %q", given, got, want.lines)
		}
	}
}
