package ignoredflags_test

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/pflag"

	"github.com/capstan-io/capstan/internal/ignoredflags"
)

func TestFlags(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args  []string
		says  []string // of what is logged
		fails string
	}{
		"none":       {nil, nil, ""},
		"a limit":    {[]string{"--qps=50.5"}, []string{"--qps", "priority and fairness"}, ""},
		"a duration": {[]string{"--interval", "10s"}, []string{"--interval", "at once"}, ""},
		"no number":  {[]string{"--qps=fast"}, nil, `invalid argument "fast" for "--qps"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, flags := ignoredflags.Flags{}, pflag.NewFlagSet("", pflag.ContinueOnError)
			f.AddLimits(flags, "qps")
			f.Add(flags, "interval", ignoredflags.Duration, "it is done at once")
			err := flags.Parse(test.args)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("error %v, want %s", err, test.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			f.Log(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
			if (len(lines) == 1) != (len(test.says) > 0) {
				t.Fatalf("logged %q", lines)
			}
			for _, text := range test.says {
				if !strings.Contains(lines[0], text) {
					t.Errorf("%q does not hold %q", lines[0], text)
				}
			}
			if strings.Contains(flags.FlagUsages(), "qps") {
				t.Error("the help shows what changes nothing")
			}
		})
	}
}
