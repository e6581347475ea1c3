package jqbudget

import (
	"context"
	"strings"
	"testing"
)

// What leads to fields is allowed, with all that people compare them with.
func TestAllowed(t *testing.T) {
	t.Parallel()
	object := map[string]any{"spec": map[string]any{"replicas": 3, "list": []any{
		map[string]any{"name": "web", "image": "web:1", "ports": []any{80, 443}}, map[string]any{"name": "proxy", "image": "proxy:1"},
	}}}
	for expression, want := range map[string]int{
		`.spec.replicas`: 1, `.spec["replicas"], .spec.missing?`: 2, `.spec.list[].image`: 2, `.. | select(type == "number")`: 3,
		`.spec.list[] | select(.name == "proxy") | .image`:                                      1,
		`.spec.list[] | select(.name | test("^pro[a-z]+$"; "i")) | .image`:                      1,
		`.spec.list[] | select(.name | startswith("w") or endswith("y")) | .image`:              2,
		`.spec.list[] | select(any(.ports[]?; . == 80)) | .ports`:                               1,
		`.spec.list[] | select(.name | IN("web", "x")) | .image`:                                1,
		`.spec.list[] | select(.name as $n | $n == "web") | .image`:                             1,
		`.spec.list[] | select(.image == .name + ":1") | .image`:                                2,
		`.spec.list[] | if .name == "web" then .image elif .name == "a" then .a else empty end`: 1,
		`.spec.list[] | if .name == "a" then error("no a") else .image end`:                     2,
		`.spec.list[0:1][].name`: 1, `.spec.list[-1].name`: 1, `.spec.list | first`: 1, `.spec.list[] | .ports // .image`: 2,
		`getpath(["spec", "replicas"])`: 1, `.spec | .list[] | select(has("ports")) | .ports[0]`: 1,
	} {
		code, err := CompilePaths(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if got, err := Run(t.Context(), code, object); err != nil || len(got) != want {
			t.Errorf("%s: %v, %v", expression, got, err)
		}
	}
}

// WK-08: each of these fills the memory, or cannot be stopped; none is compiled.
func TestNotAllowed(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{
		`"a" * 300000000`, `. as $x | $x * $x`, `def f: f; f`, `def f: ., f; f`, `[range(1e9)]`, `range(1e9)`, `[.., ..]`,
		`[limit(1e9; repeat(1))]`,
		`reduce range(1e9) as $i (""; . + "a")`, `foreach range(1e9) as $i (0; . + 1)`, `recurse(.)`, `recurse(., .)`, `repeat(.)`,
		`until(false; .)`,
		`while(true; .)`, `.a + .a`, `. + .`, `"\(.)\(.)"`, `@json`, `tojson`, `[.,.]`, `{a: ., b: .}`, `.[500000000] = 1`, `.a |= .`,
		`setpath([500000000]; 1)`,
		`label $f | .a | break $f`, `.a | test("(ab?){500}")`, `.a | test(.b)`, `contains(.b)`, `inside(.b)`, `input`, `env`,
		`$__prog_args | halt`, `combinations`,
		`.a | gsub("a"; "bb")`, `.a | join("x")`, `add`, `to_entries`, `map(.)`, `.a[range(1e9)]`, `.["\(.)"]`,
		`if def f: f; f then .a else .b end`,
		`. as {a: $x} | [$x, $x]`, `.a | ltrimstr(def f: f; f)`, `tojson | tojson`, `splits("a")`, `implode`, `.a as [$x, {b: $y}] | $x * $y`,
	} {
		if _, err := CompilePaths(expression); err == nil {
			t.Errorf("%s is allowed", expression)
		}
	}
}

// A path with several .. leads to more fields than there are.
func TestTooManyResults(t *testing.T) {
	t.Parallel()
	var object any = "x"
	for range 300 {
		object = map[string]any{"a": object}
	}
	code, err := CompilePaths(".. | .. | ..")
	if err != nil {
		t.Fatal(err)
	}
	if paths, err := Run(t.Context(), code, object); err == nil ||
		!strings.Contains(err.Error(), "leads to too many fields of the object; the limit is 500000") || len(paths) > mostResults {
		t.Errorf("%d results, %v", len(paths), err)
	}
}

// All that an expression leads to is deleted, whatever the order of the paths.
func TestDelete(t *testing.T) {
	t.Parallel()
	object := map[string]any{"a": []any{1, 2, 3, 4}, "b": map[string]any{"c": 1, "d": 2}}
	code, err := CompilePaths(".a[0], .a[2], .b.c, .e.f")
	if err != nil {
		t.Fatal(err)
	}
	paths, err := Run(context.Background(), code, object)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Delete(t.Context(), object, paths)
	if err != nil {
		t.Fatal(err)
	}
	rest := got.(map[string]any)
	if a := rest["a"].([]any); len(a) != 2 || a[0] != 2 || a[1] != 4 || len(rest["b"].(map[string]any)) != 1 {
		t.Errorf("%v is left", got)
	}
}
