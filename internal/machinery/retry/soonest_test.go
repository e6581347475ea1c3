package retry

import (
	"testing"
	"time"
)

func TestSoonest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {2, 1, 1}, {1, 2, 1}} {
		if got := Soonest(test.a, test.b); got != test.want {
			t.Errorf("of %d and %d: %d", test.a, test.b, got)
		}
	}
}
