package manifest

import "testing"

// Quantities are compared by what they mean, and not at all where that would take minutes: an exponent is written out.
func TestSameQuantity(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		required, live any
		same           bool
	}{
		{"1000m", "1", true}, {int64(1), "1", true}, {"1Gi", "1024Mi", true}, {"1e3", "1k", true}, {"1E2", "100", true}, {"1E", "1e18", true},
		{"1", "2", false}, {"a", "1", false},
		{"1e2000000000", "1", false}, {"1", "1e2000000000", false}, {"1e-2000000000", "1", false}, {"1e99999999999999999999", "1", false},
		{"1e+00000000000000101", "1", false},
	} {
		if same := sameQuantity(test.required, test.live); same != test.same {
			t.Errorf("%v and %v: %t, want %t", test.required, test.live, same, test.same)
		}
	}
}
