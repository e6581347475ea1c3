package rollout

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxLost is how many of some clusters may be lost at once, as a number or a percentage.
type MaxLost struct {
	n       int
	percent bool
}

// ParseMaxLost reads a number such as 3, or a percentage such as 30%.
func ParseMaxLost(text string) (MaxLost, error) {
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || percent && n > 100 {
		return MaxLost{}, fmt.Errorf("%q is neither a number of clusters nor a percentage from 0%% to 100%%; use one such as 3 or 30%%", text)
	}
	return MaxLost{int(n), percent}, nil
}

// Exceeded tells whether more are lost of a total.
func (m MaxLost) Exceeded(lost, total int) bool {
	if m.percent {
		return lost*100 > m.n*total
	}
	return lost > m.n
}
