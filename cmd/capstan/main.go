// Command capstan is the command line of Capstan: it talks to hubs, brings clusters to them, and runs a playground.
// The tree of its commands is in internal/cli/root.go, which tests build, too.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/capstan-io/capstan/internal/cli"
	"github.com/capstan-io/capstan/internal/program"
)

func main() {
	program.CheckConnections()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
