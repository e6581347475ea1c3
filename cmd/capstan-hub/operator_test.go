package main

import (
	"testing"

	"github.com/spf13/pflag"
)

// KL-35: the operators have the same flags for logs, metrics and health, and serve the last two where those of Open Cluster Management do.
func TestOperatorFlags(t *testing.T) {
	t.Parallel()
	f, flags := &operatorFlags{}, pflag.NewFlagSet("", pflag.ContinueOnError)
	f.add(flags)
	for name, want := range map[string]string{"listen": ":8443", "metrics-bind-address": "0", "health-probe-bind-address": "0",
		"logging-format": "text", "v": "0", "vmodule": ""} {
		if flag := flags.Lookup(name); flag == nil || flag.DefValue != want {
			t.Errorf("--%s is %+v, want %q by default", name, flag, want)
		}
	}
}
