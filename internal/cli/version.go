package cli

import (
	"runtime"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/program"
)

// versionInfo is what "capstan version" shows.
type versionInfo struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// newVersionCommand is "capstan version". It sends no request.
func newVersionCommand(global *options.Global) *cobra.Command {
	command := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Args:  options.FlagsOnly,
	}
	format := options.AddOutputFlag(command, output.Text, output.YAML, output.JSON)
	command.RunE = func(*cobra.Command, []string) error {
		info := versionInfo{Version: program.Version(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
		if format.Format() == output.Text {
			global.Say("capstan\tversion\t:%s", info.Version)
			return nil
		}
		return global.Print(format.Format(), output.View{Object: info})
	}
	return command
}
