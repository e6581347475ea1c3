package main

import (
	"os"
	"testing"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli"
	"github.com/capstan-io/capstan/test/clireference"
)

// TestReference holds docs/reference/cli/capstan.md against the commands.
func TestReference(t *testing.T) {
	clireference.Check(t, func() *cobra.Command { return cli.NewCommand(os.Stdin, os.Stdout, os.Stderr) })
}
