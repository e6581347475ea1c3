package text

import "testing"

func TestCount(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 clusters", 1: "1 cluster", 2: "2 clusters"} {
		if got := Count(n, "cluster"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestFirstFew(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		names []string
		want  string
	}{
		{nil, ""}, {[]string{"a"}, "a"}, {[]string{"a", "b", "c"}, "a, b, c"}, {[]string{"a", "b", "c", "d", "e"}, "a, b, c and 2 more"},
	} {
		if got := FirstFew(test.names); got != test.want {
			t.Errorf("%v: %q, want %q", test.names, got, test.want)
		}
	}
}
