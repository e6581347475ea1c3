package celbudget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/capstan-io/capstan/internal/machinery/budget"
)

func newTestCompiler(t testing.TB) *Compiler {
	t.Helper()
	return NewCompiler(t.Name(), func() (*cel.Env, error) {
		return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).StoredExpressionsEnv().Extend(cel.Variable("o", cel.DynType))
	}, cel.BoolType, nil)
}

// PL-03: what is beyond a bound is refused before it takes the time or the memory: each of these would take minutes, or gigabytes.
func TestBombs(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t)
	chain := func(start, link string, n int, end string) string { return start + strings.Repeat(link, n) + end }
	for name, test := range map[string]struct{ expression, want string }{
		"length": {`o.a == "` + strings.Repeat("a", ExpressionBytes) + `"`, "it has 8201 bytes; the limit is 8192 bytes"},
		"terms":  {chain("true", " && o.a == 1", 600, ""), "has too many parts; the limit is 3000 parts"},
		"macros that double": {chain("optional.of(1)", ".optMap(x, x)", 60, ".hasValue()"),
			"optMap and optFlatMap in a CEL expression: there are 60; the limit is 8"},
		"types that double": {chain("[1]", ".map(a, {a: a})", 40, ".size() == 0"),
			"entries of maps with a computed key in a CEL expression: there are 5; the limit is 4"},
		"repetitions": {`o.a.matches("` + strings.Repeat("(x{0,900})", 100) + `$")`,
			"repeats too much: it has too many parts; the limit is 10000 parts"},
		"repetitions, computed": {`"xy".matches(string(dyn("` + strings.Repeat("(x{0,900})", 100) + `$")))`, "repeats too much"},
		"repetitions to find":   {`"xy".find("` + strings.Repeat("(x{0,900})", 100) + `$") == ""`, "repeats too much"},
		"a long text to match":  {`o.long.matches("(ab?){500}$")`, "too much for a text of 1000000 bytes"},
		"a text that doubles": {chain(`"ab"`, `.replace("a","aa").replace("b","bb")`, 60, ".size() == 0"),
			"a text in a CEL expression: it has"},
		"a text that grows": {`"` + strings.Repeat("a", 3000) + `".replace("a","` + strings.Repeat("a", 3000) + `").size() == 0`,
			"it has 9000000 bytes; the limit is 1048576 bytes"},
		"a text that is joined": {`o.numbers.map(x, o.long).join(",") == ""`, "the limit is 1048576 bytes"},
		"a text that is split": {`o.long.split("").size() == 0`,
			"elements of a list in a CEL expression: there are 1000001; the limit is 100000"},
		"a list that doubles": {chain("[[0,0]]", ".map(l, l+l)", 60, ".size() == 0"),
			"elements of a list in a CEL expression: there are 131072; the limit is 100000"},
		"a tree that doubles": {chain("[dyn(0)]", ".map(l, dyn([l,l]))", 60, ".exists(l, l == l)"),
			"too many elements, counted to its depth; the limit is 100000"},
		"a tree that is searched": {chain("[dyn(0)]", ".map(l, dyn([l,l]))", 60, ".exists(l, dyn(l) in [l])"),
			"too many elements, counted to its depth"},
		"a tree that is flat": {chain("[dyn(0)]", ".map(l, dyn([l,l]))", 60, ".flatten(60).size() == 0"),
			"too many elements, counted to its depth"},
		"a tree that is written": {chain("[dyn(0)]", ".map(l, dyn([l,l]))", 60, `.exists(l, "%s".format([l]) == "")`),
			"too many elements, counted to its depth"},
		"lists of lists": {`sets.contains(o.numbers, o.numbers.map(x, x + 1))`, "cost limit exceeded"},
		"distinct":       {`o.numbers.distinct().size() == 0`, "cost limit exceeded"},
		"a quantity": {`quantity("1e2000000000").isGreaterThan(quantity("1"))`,
			`the quantity "1e2000000000" has too large an exponent; the limit is 100`},
		"a small quantity":     {`quantity(string(dyn("1e-2000000000"))).isGreaterThan(quantity("1"))`, "has too large an exponent"},
		"a loop":               {`o.numbers.all(x, o.numbers.all(y, o.numbers.all(z, x + y + z >= 0)))`, "cost limit exceeded"},
		"a loop that compares": {`o.numbers.all(x, o.tree == o.tree)`, "cost limit exceeded"},
		"a loop that fails":    {`o.numbers.all(x, o.large == o.large || true)`, "cost limit exceeded"},
		"a loop that joins":    {`o.numbers.all(x, o.numbers.join() == "" || true)`, "cost limit exceeded"},
		"a loop that formats":  {`o.numbers.all(x, "%s".format([o.numbers]) != "")`, "cost limit exceeded"},
		"a loop that splits":   {`o.numbers.all(x, o.long.split("").size() == 0 || true)`, "cost limit exceeded"},
		"a loop that contains": {`o.numbers.all(x, sets.contains([o.tree], [o.tree]))`, "cost limit exceeded"},
		"a loop that flattens": {`o.numbers.all(x, o.large.flatten().size() == 0 || true)`, "cost limit exceeded"},
		"a loop that matches":  {`o.numbers.all(x, o.text.matches("(ab?){500}$"))`, "cost limit exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program, err := c.Compile(test.expression)
			if err == nil {
				_, _, err = program.Eval(map[string]any{"o": testObject})
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

var testObject = func() map[string]any {
	numbers := make([]any, 2000)
	for i := range numbers {
		numbers[i] = int64(i)
	}
	return map[string]any{
		"numbers": numbers, "long": strings.Repeat("a", 1_000_000), "text": strings.Repeat("ab", 1000),
		"tree": map[string]any{"a": numbers, "b": []any{numbers, numbers}}, "large": slices.Repeat([]any{numbers}, 60),
	}
}()

// Loops end with the context, also within others that do not mind errors.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t)
	ended, end := context.WithCancel(t.Context())
	end()
	for _, expression := range []string{
		`o.numbers.all(x, x >= 0)`, `o.numbers.exists(x, o.numbers.all(y, o.numbers.all(z, z >= 0)) && false || x == 2000)`,
	} {
		program, err := c.Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = program.ContextEval(ended, map[string]any{"o": testObject}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want that it is interrupted", expression, err)
		}
	}
}

// What people write is far below the bounds.
func TestHonest(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t)
	names := make([]string, 300)
	for i := range names {
		names[i] = fmt.Sprintf("%q", fmt.Sprintf("cluster-%d", i))
	}
	for _, expression := range []string{
		`o.text.startsWith("ab") && o.text.matches("^(ab){3,}") && o.text.find("b+a") == "ba"`,
		`"cluster-7" in [` + strings.Join(names, ",") + `]`,
		`o.numbers.filter(x, x % 2 == 0).map(x, x * 2).sum() > 10 && o.numbers.exists(x, x == 1999)`,
		`o.?missing.optMap(m, m.size()).orValue(0) == 0`,
		`{"a": 1, "b": 2}.all(k, k in ["a", "b"]) && o.tree == o.tree && o.tree != o.numbers && o.tree.a == o.numbers`,
		`"a,b,c".split(",").map(x, x + "!").join(" ") == "a! b! c!" && "%s-%d".format(["x", 3]) == "x-3" && "aXa".replace("X", "--") == "a--a"`,
		`sets.contains(["a", "b"], ["a"]) && [1, 1, 2].distinct().size() == 2 && [[1], [2]].flatten() == [1, 2] && [1] + [2] == [1, 2]`,
		`["a", "b"].indexOf("b") == 1 && "banana".indexOf("n") == 2 && b"a" + b"b" == b"ab" && string(3) == "3" && 1 + 1 == 2 && 0.5 + 0.5 == 1.0`,
		`quantity("1Ei").isGreaterThan(quantity("1e3")) && quantity("5e-2").isLessThan(quantity("1")) && !isQuantity("a") && quantity("1E2").asInteger() == 100`,
		`timestamp("2026-01-01T00:00:00Z") + duration("1h") > timestamp("2026-01-01T00:00:00Z")`,
	} {
		program, err := c.Compile(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if value, _, err := program.Eval(map[string]any{"o": testObject}); err != nil || value.Value() != true {
			t.Errorf("%s: %v, %v", expression, value, err)
		}
	}
}

// Each expression of an object may be long, but not all of them.
func TestCount(t *testing.T) {
	t.Parallel()
	for want, expressions := range map[string][]string{
		"CEL expressions: there are 25000; the limit is 100":           strings.Split(strings.Repeat(" ", 24_999), " "),
		"CEL expression 1: it has 8193 bytes; the limit is 8192 bytes": {"true", strings.Repeat("a", 8193)},
		"the CEL expressions together: it has 40000 bytes; the limit is 32768 bytes": {strings.Repeat("a", 8000), strings.Repeat("a", 8000),
			strings.Repeat("a", 8000), strings.Repeat("a", 8000), strings.Repeat("a", 8000)},
	} {
		if err := Count(expressions); err == nil || err.Error() != want || !budget.Is(err) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// The memory of programs does not grow with the number of expressions: what was used last is kept, and compiled only once.
func TestCache(t *testing.T) {
	t.Parallel()
	c, compiled := newCache(10*(baseWeight+1)), 0
	get := func(name string) {
		if _, err := c.get(programKey{expression: name}, func() (cel.Program, error) { compiled++; return nil, nil }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		get("a")
		get(string(rune('b' + i%15)))
	}
	if len(c.elements) != 10 || c.used.Len() != 10 || compiled != 1001 {
		t.Errorf("%d programs are kept, and %d were compiled", len(c.elements), compiled)
	}
}
