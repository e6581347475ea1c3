package output_test

import (
	"bytes"
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
