package frame

import (
	"testing"
	"time"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	for want, left := range map[string][]string{"": nil, "a, b": {"a", "b"}, "a, b, c, d, e and 2 more": {"a", "b", "c", "d", "e", "f", "g"}} {
		if got := Summary(left); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestEarliest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {2, 1, 1}, {1, 2, 1}} {
		if got := Earliest(test.a, test.b); got != test.want {
			t.Errorf("of %d and %d: %d", test.a, test.b, got)
		}
	}
}
