package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// chartRepository is where the charts of the hub's side of add-ons are.
const chartRepository = "https://open-cluster-management.io/helm-charts"

// helm runs the program of this name against the hub. Its library would make every command slower to start, and this program
// three times as large.
type helm struct{ source hubapi.Source }

// run runs Helm and returns what it printed.
func (h helm) run(ctx context.Context, args ...string) (string, error) {
	args = append(args, "--kube-context", h.source.Context)
	path, err := exec.LookPath("helm")
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("the program helm is needed for this, and is not in PATH: install it (https://helm.sh/docs/intro/install), or run this where it is:\n  %s %s",
			"KUBECONFIG="+shellCommand(h.source.File), shellCommand(append([]string{"helm"}, args...)...))
	}
	if err != nil {
		return "", fmt.Errorf("the program helm cannot be used: %w", err)
	}
	var out, errOut bytes.Buffer
	command := exec.CommandContext(ctx, path, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+h.source.File) // the flag would not take several files
	command.Stdout, command.Stderr = &out, &errOut
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("helm %s: %w\n%s", args[0], err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), nil
}
