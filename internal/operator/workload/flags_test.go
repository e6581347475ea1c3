package workload

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
)

// KL-20, CM-10, CM-11: a program has the values that its flag was made of, whatever is in them.
func TestListFlag(t *testing.T) {
	t.Parallel()
	for _, values := range [][]string{
		nil, {"a"}, {"a", "b"}, {"CN=a,OU=fleet,DC=example", "b"}, {`say "hi"`}, {`"`, ","}, {" a ", "b\nc"}, {"", "a"},
	} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		got := flags.StringSlice("list", nil, "")
		if err := flags.Parse(ListFlag("--list", values...)); err != nil || !slices.Equal(*got, values) {
			t.Errorf("%q: %q, %v", values, *got, err)
		}
	}
	if flag := ListFlag("--list", "a", "b"); !slices.Equal(flag, []string{"--list=a,b"}) {
		t.Errorf("values without commas are %q", flag)
	}
}
