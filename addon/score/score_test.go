package score_test

import (
	"math"
	"testing"

	"github.com/capstan-io/capstan/addon/score"
)

// SD-07
func TestNormalize(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		value, least, most float64
		want               int32
	}{
		"the least":           {10, 10, 20, -100},
		"below the least":     {-5, 10, 20, -100},
		"the most":            {20, 10, 20, 100},
		"above the most":      {math.Inf(1), 10, 20, 100},
		"the middle":          {15, 10, 20, 0},
		"a quarter":           {12.5, 10, 20, -50},
		"rounded towards 0":   {0.9999, 0, 1, 99},
		"negative values":     {-1, -4, 0, 50},
		"not a number":        {math.NaN(), 0, 1, -100},
		"no range, and on it": {5, 5, 5, -100},
		"no range, and above": {6, 5, 5, 100},
		"nothing of nothing":  {0, 0, 0, -100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := score.Normalize(test.value, test.least, test.most); got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}
