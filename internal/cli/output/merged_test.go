package output_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-io/capstan/internal/cli/output"
)

// CA-02: tables of several servers are one, whatever columns they have and whenever they come.
func TestMerged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	table := output.NewMerged(&out)
	for _, blocks := range [][]output.Block{
		{{Columns: []string{"Cluster", "Other"}}},
		{
			{Columns: []string{"Cluster", "Name", "Age"}, Rows: [][]string{{"a", "ünï", "1d"}, {"a", "", "2d"}}},
			{Columns: []string{"Cluster", "Age", "Name"}, Rows: [][]string{{"b", "3d", "long-name"}}},
		},
		{{Columns: []string{"Cluster", "Name", "Age"}, Rows: [][]string{{"longer", "y", "4d"}}}},
		{{Columns: []string{"Cluster", "Name", "Ready", "Age"}, Rows: [][]string{{"c", "two\nlines\x1b[2J", "1/1"}}}},
	} {
		if err := table.Write(blocks); err != nil {
			t.Fatal(err)
		}
	}
	want := `CLUSTER   NAME        AGE
a         ünï         1d
a         -           2d
b         long-name   3d
longer    y           4d
CLUSTER   NAME            READY   AGE
c         two lines [2J   1/1     -
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// CA-02: what a cluster writes into a table does nothing to a terminal, and columns are as wide as what is seen of it.
func TestMergedOfUnprintableText(t *testing.T) {
	t.Parallel()
	for _, unprintable := range []string{"\u200b", "\u202e", "\u200d", "\u00a0", "\x1b[2J", "\xff", "\ufeff", "ﬁ\u2028"} {
		var out bytes.Buffer
		table := output.NewMerged(&out)
		if err := table.Write([]output.Block{
			{Columns: []string{"Cluster", "Name" + unprintable, "Age"}, Rows: [][]string{{"a", unprintable + "x", "1d"}, {unprintable, "y", "2d"}}},
			{Columns: []string{unprintable, "Age"}, Rows: [][]string{{"z", "3d"}}},
		}); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != 4 || strings.ContainsAny(out.String(), "\x1b\u202e\u200b") {
			t.Errorf("with %q:\n%q", unprintable, lines)
		}
		for _, line := range lines {
			if got, want := len([]rune(line)), len([]rune(lines[0])); got > want {
				t.Errorf("with %q: %q is longer than its header %q", unprintable, line, lines[0])
			}
		}
	}
}

// CA-02: a server does not fill the memory with columns.
func TestMergedColumnsAreBounded(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	table := output.NewMerged(&out)
	for i := range 3 {
		columns := make([]string, 999)
		for j := range columns {
			columns[j] = "c" + strconv.Itoa(i) + "-" + strconv.Itoa(j)
		}
		out.Reset()
		if err := table.Write([]output.Block{{Columns: columns, Rows: [][]string{{"x"}}}}); err != nil {
			t.Fatal(err)
		}
		header, _, _ := strings.Cut(out.String(), "\n")
		if got, want := len(strings.Fields(header)), []int{999, 1000, 1000}[i]; i < 2 && got != want {
			t.Errorf("%d columns, want %d", got, want)
		}
	}
}
