package install

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

// chartRepository is where the charts of the hub's side of add-ons are.
const chartRepository = "https://open-cluster-management.io/helm-charts"

// chartProgram installs Helm charts, for the hub's side of add-ons. Helm's library would make every command
// slower to start, and this program three times as large.
const chartProgram = "capstan-charts"

// chartGrace is how long the program has to write down how far a release is, when it is interrupted or its time is over. A release that is
// left pending keeps Helm from all others.
const chartGrace = 20 * time.Second

// chartTimeout is how long what the program does may take, in whole seconds, with time left for the end of it.
func chartTimeout(left time.Duration) time.Duration {
	return (left - min(chartGrace, left/2) + time.Second - 1).Truncate(time.Second)
}

// charts runs the program for charts against a hub.
type charts struct{ source hubapi.Source }

// run runs it and returns what it printed.
func (c charts) run(ctx context.Context, args ...string) (string, error) {
	path, err := playground.FindProgram(chartProgram)
	if err != nil {
		return "", err
	}
	args = append(args, "--kube-context", c.source.Context)
	if deadline, limited := ctx.Deadline(); limited {
		args = append(args, "--timeout", chartTimeout(time.Until(deadline)).String())
	}
	command := exec.CommandContext(ctx, path, args...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = chartGrace
	command.Env = append(os.Environ(), "KUBECONFIG="+c.source.File) // which may be several files
	return runCharts(ctx, command)
}

// runCharts returns what the program for charts printed, or what it said was wrong.
func runCharts(ctx context.Context, command *exec.Cmd) (string, error) {
	var out, errOut bytes.Buffer
	command.Stdout, command.Stderr = &out, &errOut
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("%s %s: %w", chartProgram, command.Args[1], context.Cause(ctx))
		}
		if message := strings.TrimSpace(errOut.String()); message != "" {
			return "", fmt.Errorf("%s", message)
		}
		return "", fmt.Errorf("%s %s: %w", chartProgram, command.Args[1], err)
	}
	return out.String(), nil
}
