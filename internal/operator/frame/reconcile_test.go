package frame

import "testing"

func TestSummary(t *testing.T) {
	t.Parallel()
	for want, left := range map[string][]string{"": nil, "a, b": {"a", "b"}, "a, b, c, d, e and 2 more": {"a", "b", "c", "d", "e", "f", "g"}} {
		if got := Summary(left); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
