package rollout

import "testing"

func TestMaxLost(t *testing.T) {
	t.Parallel()
	for text, exceeded := range map[string][3]bool{ // with 0, 3 and 4 of 10 lost
		"0": {false, true, true}, "3": {false, false, true}, "10": {}, "0%": {false, true, true}, "30%": {false, false, true},
		"39%": {false, false, true}, "40%": {}, "100%": {},
	} {
		m, err := ParseMaxLost(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got := [3]bool{m.Exceeded(0, 10), m.Exceeded(3, 10), m.Exceeded(4, 10)}; got != exceeded {
			t.Errorf("%s: exceeded %v, want %v", text, got, exceeded)
		}
	}
	for _, text := range []string{"", "%", "-1", "-1%", "101%", "0.5", "30 %", "many", "99999999999"} {
		if m, err := ParseMaxLost(text); err == nil {
			t.Errorf("%q is read as %+v", text, m)
		}
	}
}
