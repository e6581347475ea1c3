// Command nodecount is an add-on that reports to the hub how many nodes each cluster has. Its controller runs once, next to the hub;
// its agent runs on every cluster, where the controller deploys it.
package main

import (
	"context"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nodecount:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("say what to run: controller or agent")
	}
	switch args[0] {
	case "controller":
		return runController(ctx)
	case "agent":
		return runAgent(ctx, args[1:])
	default:
		return fmt.Errorf("cannot run %q: say controller or agent", args[0])
	}
}
