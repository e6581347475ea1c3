// Command capstan is the command line of Capstan: it talks to hubs, brings clusters to them, and runs a playground.
// The tree of its commands is in internal/cli/root.go, which tests build, too.
package main

import (
	"os"

	"github.com/capstan-io/capstan/internal/cli"
	"github.com/capstan-io/capstan/internal/program"
)

func main() {
	program.CheckConnections()
	ctx := program.UntilHangup(program.Context()) // an agent in this terminal is not to outlive it
	os.Exit(cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
