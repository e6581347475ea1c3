package text_test

import (
	"testing"

	"github.com/capstan-io/capstan/internal/machinery/text"
)

func TestOneLine(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"": "", "plain ünï": "plain ünï", "two\nlines\ttab": "two lines tab", "\x1b[2J\u009b2J\x7f": " [2J 2J ",
	} {
		if got := text.OneLine(given); got != want {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
}
