package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReport: of a measure in two files the latest counts, what has one value is a column for each size, what has many is a row, what
// misses its target is marked, and curves are drawn over two sizes or more.
func TestReport(t *testing.T) {
	in, out := t.TempDir(), t.TempDir()
	write := func(folder, file, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(in, "a.json", `{"commit": "aaa", "date": "2026-01-02T00:00:00Z", "machine": {"cores": 2, "memoryGB": 7.8, "load": 0.25}, "measures": [
		{"name": "100 clusters: start to all Available", "unit": "s", "runs": 1, "median": 5.25},
		{"name": "100 clusters: clusters Available per second", "unit": "1/s", "runs": 1, "median": 17.68, "target": "≥20"},
		{"name": "100 clusters: requests to join, each", "runs": 1, "median": 20, "target": "20"},
		{"name": "100 clusters: start to Available, each", "unit": "ms", "runs": 100, "min": 1, "p25": 2, "median": 3, "p75": 4.5, "p90": 50, "max": 1234,
			"target": "2"}]}`)
	write(in, "b.json", `{"commit": "bbb", "date": "2026-01-01T00:00:00Z", "measures": [
		{"name": "100 clusters: start to all Available", "unit": "s", "runs": 1, "median": 9},
		{"name": "1000 clusters: start to all Available", "unit": "s", "runs": 1, "median": 61.26, "target": "120"},
		{"name": "1000 clusters: clusters Available per second", "unit": "1/s", "runs": 1, "median": 20, "target": "≥20"},
		{"name": "1000 clusters: requests to join, each", "runs": 1, "median": 30.2, "target": "20"}]}`)
	write(out, "gone.svg", "<svg/>")
	if err := run(in, out); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(out, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| clusters | 100 | 1,000 | target |",
		"| start to all Available, s | 5.25 | 61.3 | 120 with 1,000 |",
		"| clusters Available per second, 1/s | 17.7, missed | 20 | ≥20 |",
		"| requests to join, each | 20 | 30.2, missed | 20 |",
		"| start to Available, each, ms | 100 | 100 | 1 | 2 | 3 | 4.50 | 50 | 1,234 | 2, missed |",
		"![Start of all agents to all clusters Available](join.svg)",
		"| [a.json](results/a.json) | aaa | 2026-01-02 |  | 2 | 7.80 | 0.2 |  |  |",
	} {
		if !strings.Contains(string(page), line+"\n") {
			t.Errorf("the page has no line %q:\n%s", line, page)
		}
	}
	if strings.Contains(string(page), "## At rest") || strings.Contains(string(page), "join-cpu.svg") {
		t.Errorf("the page shows what was not measured:\n%s", page)
	}
	curve, err := os.ReadFile(filepath.Join(out, "join.svg"))
	if err != nil || !strings.Contains(string(curve), ">1,000<") {
		t.Errorf("the curve: %.200s, %v", curve, err)
	}
	for _, file := range []string{"gone.svg", "join-cpu.svg"} {
		if _, err := os.Stat(filepath.Join(out, file)); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", file, err)
		}
	}
}

func TestUnreadableMeasures(t *testing.T) {
	for measure, want := range map[string]string{
		`{"name": "hub start to ready"}`: `measure "hub start to ready": it has to begin with the size of the fleet, such as "100 clusters: "`,
		`{"name": "1 clusters: a", "target": "15, p90 30"}`: `measure "1 clusters: a": target "15, p90 30": ` +
			`it has to be a number, after a ≥ if that is the least`,
	} {
		in := t.TempDir()
		if err := os.WriteFile(filepath.Join(in, "bench.json"), []byte(`{"measures": [`+measure+`]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run(in, t.TempDir()); err == nil || err.Error() != "bench.json: "+want {
			t.Errorf("got %v, want bench.json: %s", err, want)
		}
	}
}

func TestFigure(t *testing.T) {
	for value, want := range map[float64]string{0: "0", 0.123: "0.12", 3: "3", 9.996: "10.00", 12.34: "12.3", 99.96: "100.0", 1253.4: "1,253",
		1234567: "1,234,567"} {
		if got := figure(value); got != want {
			t.Errorf("figure(%v) is %s, want %s", value, got, want)
		}
	}
}
