package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/capstan-io/capstan/internal/hub"
	"github.com/capstan-io/capstan/internal/logging"
	"github.com/capstan-io/capstan/internal/placement"
)

// CM-31: what is wrong with the flags is an error that names them; what is right has the placements explained as the controllers would.
func TestPlacementDebugFlags(t *testing.T) {
	t.Parallel()
	for line, says := range map[string]string{
		"":                               "",
		"--placement-tie-break=Hash":     "",
		"--placement-tie-break=Random":   `--placement-tie-break is "Random"; use one of Name, Hash`,
		"--tls-cert-file=c":              "--tls-cert-file, --tls-private-key-file: name both",
		"--tls-private-key-file=k":       "--tls-cert-file, --tls-private-key-file: name both",
		"--secure-port=0":                "--secure-port 0: must be from 1 to 65535",
		"--secure-port=65536":            "--secure-port 65536: must be from 1 to 65535",
		"--tls-min-version=VersionTLS99": "--tls-min-version VersionTLS99",
	} {
		f := placementDebugFlags{hub: newHubFlags(), port: defaultDebugPort, logs: logging.New()}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.add(flags)
		if err := flags.Parse(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		options, server, err := f.options()
		if says != "" {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %s", line, err, says)
			}
			continue
		}
		hashed := options.TieBreak == placement.TieBreakHash
		if err != nil || server.Address != ":9443" || options.PlacementDebug == nil || hashed != (line != "") ||
			len(options.Running()) != 1 || options.Running()[0] != hub.GroupPlacement {
			t.Errorf("%s: %+v, %+v, %v", line, options, server, err)
		}
	}
}
