package cli

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CA-10, CA-15, CA-19, CA-20, CA-41: a copy of the program installs hub and agent, upgrades them and takes them away without any other
// program: there is none beside it, and none in PATH.
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
	var hub struct {
		Token  string   `json:"hub-token"`
		Server string   `json:"hub-apiserver"`
		Pins   []string `json:"ca-cert-hash"`
	}
	if err := json.Unmarshal([]byte(framework.Hub.Capstan(t, "", "get", "token", "-o", "json").Out), &hub); err != nil {
		t.Fatal(err)
	}
	const name = "joins-by-copy"
	join := []string{"join", "--hub-token", hub.Token, "--hub-apiserver", hub.Server, "--cluster-name", name, "--ca-cert-hash",
		strings.Join(hub.Pins, ",")}
	for _, args := range [][]string{
		{"init", "--dry-run"}, {"init"}, {"upgrade", "clustermanager"}, {"clean"},
		append([]string{"join", "--dry-run"}, join[1:]...), join, {"upgrade", "klusterlet"}, {"unjoin", "--cluster-name", name},
	} {
		args = append([]string{"--kubeconfig", server.Kubeconfig}, args...)
		command := env.Command(t.Context(), filepath.Join(dir, filepath.Base(program)), args...)
		command.Env = []string{"PATH=", "HOME=" + dir, "TMPDIR=" + dir}
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("capstan %s: %v\n%s", strings.Join(args[2:], " "), err, out)
		}
	}
}
