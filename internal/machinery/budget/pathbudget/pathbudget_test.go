package pathbudget

import (
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/machinery/budget"
)

func object() map[string]any {
	list := make([]any, 1000)
	for i := range list {
		list[i] = map[string]any{"a": strings.Repeat("x", 500), "b": map[string]any{"c": int64(i)}}
	}
	return map[string]any{"list": list}
}

func deep(levels int) any {
	var value any = "x"
	for range levels {
		value = map[string]any{"a": value}
	}
	return value
}

// WK-25: values multiply with each .. and each union; what would visit too many is refused before it does.
func TestAllow(t *testing.T) {
	t.Parallel()
	for path, test := range map[string]struct {
		object any
		want   string
	}{
		".a": {}, ".list[*].a": {}, ".list[0].b.c": {}, "..a": {}, ".list[?(@.a==\"y\")].b": {}, "..b..c": {object: map[string]any{"a": "b"}},
		"['a','b']": {}, ".list[0:10].a": {}, ".list[-1:].a": {}, "..a..b..c": {object: deep(50)},
		"..a..b":                {want: "the JSON path visits up to 2520010 values of the object; the limit is 2000000"},
		"..a..b..c..d..e..f..g": {want: "values of the object; the limit is 2000000"},
		"..c":                   {object: deep(5000), want: "the object is nested 5001 levels deep, and the JSON path has ..; the limit is 100"},
		".list" + strings.Repeat("[0,0,0,0,0,0,0,0]", 20):          {want: "alternatives of a JSON path"},
		".list[*]" + strings.Repeat("['b','b','b','b']", 5) + ".c": {want: "the JSON path visits up to"},
		".list[?(@..a..b..c==1)]":                                  {want: "the JSON path visits up to"},
		".list[*]}{range .list[*]}{range .list[*]}{.a}{end}{end}":  {want: "it must be one path"},
		"." + strings.Repeat("a", PathBytes):                       {want: "the JSON path: it has 4099 bytes; the limit is 4096 bytes"},
	} {
		if test.object == nil {
			test.object = object()
		}
		parsed, err := Parse("path", "{"+path+"}")
		if err == nil {
			err = NewReader(test.object).Allow(parsed)
		}
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", path, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%.100s: got %v, want %s", path, err, test.want)
		}
	}
}

// All paths of an object have a budget together.
func TestAllTogether(t *testing.T) {
	t.Parallel()
	parsed, err := Parse("path", "{..a}")
	if err != nil {
		t.Fatal(err)
	}
	r := NewReader(object())
	for i := range 19 {
		if err := r.Allow(parsed); err != nil {
			t.Fatalf("path %d: %v", i, err)
		}
	}
	if err := r.Allow(parsed); !budget.Is(err) ||
		!strings.Contains(err.Error(), "visit too many values of the object; the limit is 10000000") {
		t.Errorf("got %v", err)
	}
}
