package manifest

import "testing"

// WK-05: numbers are compared by value, integers by all their digits, which a float64 has no room for above 2^53.
func TestSameScalar(t *testing.T) {
	t.Parallel()
	const large = int64(1) << 53
	for name, test := range map[string]struct {
		required, live any
		same           bool
	}{
		"equal integers":                {int64(1), int64(1), true},
		"other integers":                {int64(1), int64(2), false},
		"an integer and a float":        {int64(1), 1.0, true},
		"a float and an integer":        {1.0, int64(1), true},
		"a float with a fraction":       {int64(1), 1.5, false},
		"equal large integers":          {large + 1, large + 1, true},
		"large integers, one apart":     {large, large + 1, false},
		"negative ones, one apart":      {-large, -large - 1, false},
		"a large integer and its float": {large, float64(large), true},
		"a number and a text":           {int64(1), "1", false},
		"a number and nothing":          {int64(0), nil, false},
	} {
		if got := sameScalar(position{}, test.required, test.live); got != test.same {
			t.Errorf("%s: %t", name, got)
		}
	}
}
