package cli

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CA-10, CA-14, CA-15, CA-19, CA-20, CA-41: a copy of the program installs hub, agent and standalone hub, upgrades the first two and takes
// them away without any other program: there is none beside it, and none in PATH.
func TestCopiedProgramInstalls(t *testing.T) {
	t.Parallel()
	server := env.StartSandbox(t)
	program, err := env.Binary("capstan")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// Another process writes the copy: one that this process has open for writing could not be run while a parallel test starts a program.
	if out, err := exec.CommandContext(t.Context(), "cp", program, dir).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v: %s", err, out)
	}
	const name = "joins-by-copy"
	join := joinCommand(t, framework.Hub, name)
	for _, args := range [][]string{
		{"init", "--dry-run"}, {"init"}, {"upgrade", "clustermanager"}, {"clean"},
		append(slices.Clone(join), "--dry-run"), join, {"upgrade", "klusterlet"}, {"unjoin", "--cluster-name", name},
		{"init", "--singleton", "--dry-run"}, {"init", "--singleton"},
	} {
		args = append([]string{"--kubeconfig", server.Kubeconfig}, args...)
		ctx, cancel := context.WithTimeout(t.Context(), env.WaitTimeout)
		command := env.Command(ctx, filepath.Join(dir, filepath.Base(program)), args...)
		command.Env = []string{"PATH=", "HOME=" + dir, "TMPDIR=" + dir}
		out, err := command.CombinedOutput()
		cancel()
		if err != nil {
			t.Fatalf("capstan %s: %v\n%s", strings.Join(args[2:], " "), err, out)
		}
	}
}
